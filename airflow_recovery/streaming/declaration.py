"""The streaming regions of a job, which are at channels, and what is refused of them before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.mode import DeclaringMode, modes_in
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.result_type import PIPELINED_APPROXIMATE
from airflow_recovery.planning.logical import LogicalTopology
from airflow_recovery.streaming.mode import ChannelPlan, StreamingPlan
from airflow_recovery.streaming.options import APPROXIMATE, ApproximateResult, Streaming
from airflow_recovery.streaming.refusals import ChannelDeclaration, SinkGuarantee, VertexDeclaration, refusals

if TYPE_CHECKING:
    from airflow_recovery.planning.graph import JobGraph
    from airflow_recovery.planning.regions import Region, RegionGraph


def has_channels(vertices: Mapping[str, Vertex]) -> bool:
    """Whether anything in the job is a channel."""
    return any(vertex.result is PIPELINED_APPROXIMATE for vertex in vertices.values())


@dataclass(frozen=True)
class StreamDeclaration:
    """What a vertex declares of streams."""

    channel: ApproximateResult | None = None
    """Of its result, where that is a channel."""
    streaming: Streaming | None = None
    """How its region runs, where it says so."""


class StreamingDeclaration(DeclaringMode):
    """What is declared of streaming regions: options, channels, and how they restart."""

    declared_by = "result=APPROXIMATE"
    usual_strategy = FailoverStrategy.APPROXIMATE_SINGLE  # a region restarts alone
    last_task = "airflow_recovery.streaming.audit_operator"

    def declared(self, vertex: Vertex, options: Mapping[str, Any]) -> StreamDeclaration | None:
        """The options of its channel and its region; `None` without either. Raises `JobDefinitionError`."""
        result, streaming = options.get("result"), options.get("streaming")
        if streaming is not None and not isinstance(streaming, Streaming):
            raise JobDefinitionError(
                f"{vertex.where}: expected streaming=Streaming(...), found {streaming!r}", code="streaming-unfit"
            )
        channel = None
        if vertex.result is PIPELINED_APPROXIMATE:
            channel = result if isinstance(result, ApproximateResult) else APPROXIMATE
        return None if channel is None and streaming is None else StreamDeclaration(channel, streaming)

    def check_job(self, graph: RegionGraph, vertices: Mapping[str, Vertex], job_graph: JobGraph) -> None:
        """Raise `JobDefinitionError` for streaming regions that could not run, hang, or lose more than is declared."""
        for region in graph.regions:
            _check_region(region, vertices)
        if has_channels(vertices):
            check_refusals(graph, vertices, job_graph)

    def check_strategy(self, strategy: FailoverStrategy, vertices: Mapping[str, Vertex], job: str) -> None:
        """Raise `JobDefinitionError` for a strategy that is about channels, of a job that has none."""
        if not has_channels(vertices):
            raise JobDefinitionError(
                f"job {job!r}: expected result=APPROXIMATE somewhere, since the failover strategy is "
                f"{strategy.value!r}, found no such result: approximate recovery is for streaming regions, which "
                "run at the same time. A batch job loses nothing that is registered anyway: use the strategy 'region'"
            )

    def in_plan(self, region: Region, graph: RegionGraph, vertices: Mapping[str, Vertex]) -> StreamingPlan | None:
        """The channels at its ends, and what its failover has to know; `None` for a region without channels."""
        if not region.channels_in and not region.channels_out:
            return None

        def planned(result: str) -> ChannelPlan:
            declared = channel_of(vertices[result])
            return ChannelPlan(result, graph.region_of(result).name, declared.reconnect, declared.overflow)

        streaming = streaming_of(region, vertices)
        return StreamingPlan(
            channels_in=tuple(planned(read.result) for read in region.channels_in),
            channels_out=tuple(map(planned, region.channels_out)),
            stateful=streaming.stateful,
            replays=streaming.replays,
        )

    def check_dag(
        self,
        graph: RegionGraph,
        vertices: Mapping[str, Vertex],
        job_graph: JobGraph,
        where: str,
        *,
        recovers: bool,
        max_active_tasks: int | None,
    ) -> None:
        """Raise `JobDefinitionError` where the DAG never runs all streaming regions at once, or recovery is off."""
        if not recovers:
            raise JobDefinitionError(
                f"{where}: recovery is off, and the job has channels (result=APPROXIMATE), whose ends find each other "
                "in the journal: leave recovery on, or declare the results with result=BLOCKING.",
                code="channels-without-recovery",
            )
        check_refusals(graph, vertices, job_graph, max_active_tasks=max_active_tasks)


MODE = StreamingDeclaration()


def declared_of(vertex: Vertex) -> StreamDeclaration:
    """What a vertex declares of streams; nothing where it is of another mode."""
    declared = vertex.modes.get("streaming")
    return declared if isinstance(declared, StreamDeclaration) else StreamDeclaration()


def streaming_of(region: Region, vertices: Mapping[str, Vertex]) -> Streaming:
    """How a streaming region runs, as one of its vertices says, else the defaults."""
    declared = (declared_of(vertices[name]).streaming for name in region.vertices)
    return next((streaming for streaming in declared if streaming is not None), Streaming())


def channel_of(vertex: Vertex) -> ApproximateResult:
    """What a vertex has declared of the channel that is its result."""
    channel = declared_of(vertex).channel
    assert channel is not None, vertex.name
    return channel


def check_refusals(
    graph: RegionGraph,
    vertices: Mapping[str, Vertex],
    job_graph: JobGraph,
    *,
    max_active_tasks: int | None = None,
) -> None:
    """What `airflow_recovery.streaming.refusals` refuses, as one `JobDefinitionError`."""
    channels = {
        name: ChannelDeclaration(channel.reconnect, channel.overflow, channel.budget, channel.max_bytes)
        for name, vertex in vertices.items()
        if (channel := declared_of(vertex).channel) is not None
    }
    declarations = {
        name: _declaration(vertices[name], streaming_of(region, vertices))
        for region in graph.regions
        if region.is_streaming
        for name in region.vertices
    }
    refused = refusals(LogicalTopology.of(job_graph), channels, declarations, max_active_tasks=max_active_tasks)
    if refused:
        raise JobDefinitionError(
            f"job {graph.job!r}: " + "; ".join(refusal.text() for refusal in refused), code="channels-refused"
        )


def _declaration(vertex: Vertex, streaming: Streaming) -> VertexDeclaration:
    return VertexDeclaration(
        replays=streaming.replays,
        is_stateful=streaming.stateful,
        sink=_guarantee(vertex),
        allow_approximate=streaming.allow_approximate,
        allow_stateful_loss=streaming.allow_stateful_loss,
        allow_unknown_loss=streaming.allow_unknown_loss,
    )


def _guarantee(vertex: Vertex) -> SinkGuarantee | None:
    if vertex.kind is not VertexKind.SINK:
        return None
    if vertex.sink is not None:
        return SinkGuarantee.EXACTLY_ONCE
    return SinkGuarantee.FOREIGN if vertex.allow_duplicates else SinkGuarantee.CHANNEL_LOG


def _check_region(region: Region, vertices: Mapping[str, Vertex]) -> None:
    declared = [name for name in region.vertices if declared_of(vertices[name]).streaming is not None]
    if not region.is_streaming:
        if declared:
            raise JobDefinitionError(
                f"{vertices[declared[0]].where}: expected streaming= in a streaming region, which reads or makes a "
                "result with result=APPROXIMATE, found none: leave streaming= out"
            )
        return
    where = vertices[region.vertices[0]].where
    if len(declared) > 1:
        raise JobDefinitionError(
            f"{vertices[declared[1]].where}: expected streaming= once in a region, found it at {declared[0]!r} as "
            "well: they are one Spark query; say it at one of them"
        )
    if len(region.channels_in) > 1 or len(region.channels_out) > 1:
        ends = [region_input.result for region_input in region.channels_in], list(region.channels_out)
        raise JobDefinitionError(
            f"{where}: expected a streaming region to read one channel at most and to feed one at most, found it reads "
            f"{ends[0]} and feeds {ends[1]}: a commit is one record, in one channel's log. Make the others "
            "result=BLOCKING, or union them before the channel"
        )
    if region.channels_out and region.results:
        raise JobDefinitionError(
            f"{where}: expected a streaming region that feeds a channel to make nothing else, found "
            f"{', '.join(region.results)}: write that in a region of its own at the channel's end"
        )
    if not region.channels_out and len(region.results) != 1:
        raise JobDefinitionError(
            f"{where}: expected the last streaming region to make one result, found {', '.join(region.results)}: its "
            "batches are committed one by one; split the results behind it, in regions of their own"
        )
    for name in region.vertices:
        _check_vertex(vertices[name])


def _check_vertex(vertex: Vertex) -> None:
    for what, is_declared in (
        ("parallelism=", vertex.parallelism is not None),
        ("coordinator=", vertex.coordinator is not None),
        ("splits=", vertex.splits is not None),
        ("table=", vertex.table is not None),
        *((mode.declared_by, mode is not MODE) for mode in modes_in([vertex])),
        (f"result={vertex.result.name}", vertex.result.is_cached or vertex.result.persistent),
    ):
        if is_declared:
            raise JobDefinitionError(
                f"{vertex.where}: expected a vertex of a streaming region, found {what}, which is of batches: such a "
                "region is one application on one stream. Read streams with spark.readStream, cut channels with "
                "APPROXIMATE(subpartitions=...), and keep batches in regions of their own, behind result=BLOCKING"
            )
