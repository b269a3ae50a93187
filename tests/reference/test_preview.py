"""What the product says of a restart with channels, beside FLIP-135's rules for subtasks, on plans of all shapes."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.model.mode import BATCH
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.streaming.channel_graph import ChannelGraph
from airflow_recovery.streaming.mode import ChannelPlan, StreamingPlan
from airflow_recovery.streaming.preview import preview, taken_along
from airflow_recovery.streaming.refusals import ChannelDeclaration, VertexDeclaration
from airflow_recovery.streaming.restart import StreamingRestartMode
from reference.approximate import ApproximateRestart, ApproximateStrategy, approximate_restart
from reference.approximate_preview import preview as preview_of_flip
from reference.execution_topology import ExecutionTopology
from reference.logical import LogicalEdge, LogicalResult, LogicalTopology, LogicalVertex

MODES = (
    StreamingRestartMode.ALONE,
    StreamingRestartMode.BEHIND,
    StreamingRestartMode.ALTERED,
    StreamingRestartMode.START_OVER,
)


@st.composite
def plans(draw: st.DrawFn) -> PlanRecord:
    """Up to seven regions; each reads some earlier ones by blocking results, and some by channels, one reader each."""
    number = count(1)
    blocking: list[str] = []
    channels: dict[str, list[ChannelPlan]] = {}
    read_by: dict[str, tuple[list[str], list[ChannelPlan]]] = {}
    for at in range(draw(st.integers(1, 7))):
        name = f"r{at}"
        inputs = draw(st.lists(st.sampled_from(blocking), unique=True, max_size=2)) if blocking else []
        feeders = draw(st.lists(st.sampled_from(list(channels)), unique=True, max_size=3)) if channels else []
        read = [
            ChannelPlan(f"c{next(number)}", feeder, draw(st.sampled_from(Reconnect)), draw(st.sampled_from(Overflow)))
            for feeder in feeders
        ]
        for channel in read:
            channels[channel.producer].append(channel)
        read_by[name] = inputs, read
        channels[name] = []
        blocking.append(name)
    return PlanRecord(
        "job",
        tuple(
            RegionPlan(name, (name,), (name,), tuple(inputs), False, None, mode=mode)
            for name, (inputs, read) in read_by.items()
            for streams in [StreamingPlan(tuple(read), tuple(channels[name]), replays=draw(st.booleans()))]
            for mode in [streams if streams.channels else BATCH]
        ),
    )


def topology_of(plan: PlanRecord) -> ExecutionTopology:
    """Every region is a vertex with one subtask; its results are blocking, its channels have their own names."""
    results, edges = [], []
    for region in plan.regions:
        streams = StreamingPlan.of(region)
        results += [LogicalResult(f"{region.name}.{name}", region.name, ResultType.BLOCKING) for name in region.results]
        results += [
            LogicalResult(channel.result, region.name, ResultType.PIPELINED_APPROXIMATE)
            for channel in streams.channels_out
        ]
        edges += [LogicalEdge(f"{producer}.{producer}", region.name) for producer in region.inputs]
        edges += [LogicalEdge(channel.result, region.name) for channel in streams.channels_in]
    return ExecutionTopology(LogicalTopology([LogicalVertex(region.name) for region in plan.regions], results, edges))


def flip(
    topology: ExecutionTopology, graph: ChannelGraph, region: str, mode: StreamingRestartMode
) -> ApproximateRestart:
    """FLIP-135's answer. Starting over is milestone one; a sink does so where the channel that it reads is lost."""
    planned = StreamingPlan.of(graph.regions[region])
    outputs = {channel.result for channel in planned.channels_out}
    is_sink = mode is StreamingRestartMode.START_OVER and not outputs
    return approximate_restart(
        topology,
        topology.graph.vertex_id(region),
        {
            StreamingRestartMode.BEHIND: ApproximateStrategy.DOWNSTREAM,
            StreamingRestartMode.START_OVER: ApproximateStrategy.SINK,
        }.get(mode, ApproximateStrategy.SINGLE),
        available=lambda partition: True,
        lost=topology.graph.partition_id(planned.channels_in[0].result) if is_sink else None,
        changed=lambda result: mode is StreamingRestartMode.ALTERED and result in outputs,
        replays=lambda name: name not in graph.regions or StreamingPlan.of(graph.regions[name]).replays,
    )


@pytest.mark.slow
@settings(max_examples=600)
@given(plans(), st.sampled_from(MODES), st.data())
def test_who_restarts_and_what_becomes_of_the_channels_is_flip_135(
    plan: PlanRecord, mode: StreamingRestartMode, data: st.DataObject
) -> None:
    graph = ChannelGraph(plan)
    # Only what feeds a channel can have another output.
    able = [name for name in graph.regions if mode is not StreamingRestartMode.ALTERED or graph.readers(name)]
    if not able:
        return
    region = data.draw(st.sampled_from(able))
    topology = topology_of(plan)
    expected = flip(topology, graph, region, mode)

    along = taken_along(graph, region, mode)

    assert along.regions == {topology.graph.vertex_name(vertex).vertex for vertex in expected.vertices}
    streams = {name: StreamingPlan.of(planned) for name, planned in graph.regions.items()}
    fed_by_those = {channel.result for name in along.starting_over for channel in streams[name].channels_out}
    assert fed_by_those == expected.new_generation - expected.altered
    channels = {
        channel.result: ChannelDeclaration(channel.reconnect, channel.overflow)
        for planned in streams.values()
        for channel in planned.channels_out
    }
    declared = {name: VertexDeclaration(replays=planned.replays) for name, planned in streams.items()}
    told = preview_of_flip(topology, expected, channels, declared)
    assert [each.text() for each in preview(graph, region, mode)] == [each.text() for each in told]
