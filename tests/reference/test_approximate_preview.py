"""docs/approximate.md#failures as a table: what is lost and repeated by strategy, failed region and declaration."""

from __future__ import annotations

import pytest
from topologies import single_subtasks

from airflow_recovery.model.channel_options import LossBudget, Overflow, Reconnect
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.streaming.refusals import ChannelDeclaration, SinkGuarantee, VertexDeclaration
from reference.approximate import ApproximateStrategy, approximate_restart
from reference.approximate_preview import LossPreview, RepeatPreview, preview
from reference.execution_topology import ExecutionTopology

SINK, DOWNSTREAM, SINGLE = ApproximateStrategy
TOPOLOGY = ExecutionTopology(
    single_subtasks({"a b": ResultType.PIPELINED_APPROXIMATE, "b c": ResultType.PIPELINED_APPROXIMATE})
)
BUDGET = LossBudget(max_lost_records=10)
REWIND = ChannelDeclaration()
LATEST = ChannelDeclaration(reconnect=Reconnect.LATEST, budget=BUDGET)
DROP = ChannelDeclaration(overflow=Overflow.DROP, budget=BUDGET)
NOTHING, HEAD, DROPPED = LossPreview.NOTHING, LossPreview.TO_THE_HEAD, LossPreview.DROPPED


def told(strategy, failed, channel=REWIND, *, vertices=None, changed=(), lost=()):
    graph = TOPOLOGY.graph
    declared = vertices or {}
    restart = approximate_restart(
        TOPOLOGY,
        graph.vertex_id(failed),
        strategy,
        available=lambda partition: graph.partition_name(partition).result not in lost,
        changed=lambda result: result in changed,
        replays=lambda vertex: declared.get(vertex, VertexDeclaration()).replays,
    )
    return preview(TOPOLOGY, restart, {"a b": channel, "b c": channel}, declared)


@pytest.mark.parametrize(
    ("strategy", "failed", "channel", "expected"),
    [
        #                           a ~ b    b ~ c
        (SINK, "c", REWIND, (NOTHING, NOTHING)),
        (SINK, "c", LATEST, (NOTHING, HEAD)),
        (SINK, "c", DROP, (NOTHING, DROPPED)),
        (SINK, "b", LATEST, (NOTHING, NOTHING)),  # all starts over
        (SINK, "a", LATEST, (NOTHING, NOTHING)),
        (DOWNSTREAM, "b", REWIND, (NOTHING, NOTHING)),
        (DOWNSTREAM, "b", LATEST, (HEAD, HEAD)),
        (DOWNSTREAM, "a", LATEST, (HEAD, HEAD)),
        (DOWNSTREAM, "c", DROP, (NOTHING, DROPPED)),
        (SINGLE, "a", LATEST, (NOTHING, NOTHING)),
        (SINGLE, "b", LATEST, (HEAD, NOTHING)),  # its output goes on where it was
        (SINGLE, "b", REWIND, (NOTHING, NOTHING)),
        (SINGLE, "c", LATEST, (NOTHING, HEAD)),
    ],
)
def test_what_is_lost(strategy, failed, channel, expected):
    found = told(strategy, failed, channel)
    assert tuple(each.loss for each in found) == expected
    assert {each.repeat for each in found} == {RepeatPreview.NOTHING}


def test_a_foreign_sink_may_repeat_a_batch_when_it_restarts():
    vertices = {"c": VertexDeclaration(sink=SinkGuarantee.FOREIGN, allow_approximate=True)}
    assert told(SINGLE, "c", vertices=vertices)[1].repeat is RepeatPreview.ONE_BATCH
    assert told(SINGLE, "b", vertices=vertices)[1].repeat is RepeatPreview.NOTHING


@pytest.mark.parametrize("strategy", [DOWNSTREAM, SINGLE])
def test_what_a_source_without_replay_loses_is_unknown_and_not_nothing(strategy):
    vertices = {"a": VertexDeclaration(replays=False, allow_unknown_loss=True)}
    found = told(strategy, "a", vertices=vertices)[0]
    assert (found.loss, found.repeat) == (LossPreview.UNKNOWN, RepeatPreview.LAST_EPOCH)
    assert told(strategy, "b", vertices=vertices)[0].loss is NOTHING


def test_an_altered_output_leaves_the_rest_of_the_old_generation_behind():
    assert [each.loss for each in told(SINGLE, "b", changed={"b c"})] == [NOTHING, LossPreview.OLD_GENERATION]


def test_a_consumer_cleared_after_the_end_of_its_channel_loses_nothing():
    assert {each.loss for each in told(SINGLE, "c", LATEST, lost={"b c"})} == {NOTHING}


def test_it_is_told_in_one_line():
    assert told(SINGLE, "c", LATEST)[1].text() == (
        "b c: lost from the checkpoint to the head at the reconnection; repeated nothing"
    )
