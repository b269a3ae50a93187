"""What a restart will lose and repeat, channel by channel, before it happens: FLIP-135's table with our columns.

It is what a plan shows to a person. What was really lost is in the ledger (`airflow_recovery.streaming.ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.channel_options import Overflow, Reconnect
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.streaming.refusals import ChannelDeclaration, SinkGuarantee, VertexDeclaration
from reference.approximate import ApproximateRestart
from reference.execution_topology import ExecutionTopology


class LossPreview(str, Enum):
    """What will be missing behind a channel."""

    NOTHING = "nothing"
    DROPPED = "what overflow had dropped"
    TO_THE_HEAD = "from the checkpoint to the head at the reconnection"
    OLD_GENERATION = "what was not committed of the old generation"
    UNKNOWN = "unknown: its source can't replay"


class RepeatPreview(str, Enum):
    """What will be there twice."""

    NOTHING = "nothing"
    ONE_BATCH = "up to one batch of a foreign sink"
    LAST_EPOCH = "at most the last epoch of a source that can't replay"


@dataclass(frozen=True)
class ChannelPreview:
    """What a restart does to what passes one channel."""

    result: str
    loss: LossPreview
    repeat: RepeatPreview

    def text(self) -> str:
        """One line."""
        return f"{self.result}: lost {self.loss.value}; repeated {self.repeat.value}"


def preview(
    topology: ExecutionTopology,
    restart: ApproximateRestart,
    channels: Mapping[str, ChannelDeclaration],
    vertices: Mapping[str, VertexDeclaration],
) -> tuple[ChannelPreview, ...]:
    """Every channel of the job, in the order of its results; what is not declared has the defaults."""
    restarting = {topology.graph.vertex_name(vertex).vertex for vertex in restart.vertices}
    unknown = {topology.graph.vertex_name(each).vertex for each in restart.unknown_at_origin}
    found = []
    for number, result in enumerate(topology.logical.results):
        if result.type is not ResultType.PIPELINED_APPROXIMATE:
            continue
        consumers = [topology.logical.edges[edge].consumer for edge in topology.logical.readers_of[number]]
        is_foreign = any(
            vertices.get(consumer, VertexDeclaration()).sink is SinkGuarantee.FOREIGN and consumer in restarting
            for consumer in consumers
        )
        repeat = RepeatPreview.ONE_BATCH if is_foreign else RepeatPreview.NOTHING
        loss = _loss(result.name, restart, channels.get(result.name, ChannelDeclaration()))
        if result.producer in unknown:
            loss, repeat = LossPreview.UNKNOWN, RepeatPreview.LAST_EPOCH
        found.append(ChannelPreview(result.name, loss, repeat))
    return tuple(found)


def _loss(result: str, restart: ApproximateRestart, channel: ChannelDeclaration) -> LossPreview:
    if result in restart.altered:
        return LossPreview.OLD_GENERATION
    if result in restart.reconnected:
        if channel.reconnect is Reconnect.LATEST:
            return LossPreview.TO_THE_HEAD
        if channel.overflow is Overflow.DROP:
            return LossPreview.DROPPED
    # Connected through, or made again from the beginning.
    return LossPreview.NOTHING
