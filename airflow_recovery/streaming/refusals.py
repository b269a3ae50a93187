"""What is refused before anything starts: a job with channels that could hang, or lose more than its author knows.

`refusals` says what a declaration alone can tell, at parse. The rest is told where it is seen: a store without
conditional writes by the store's probe, another schema by `airflow_recovery.streaming.producing.open_producer`, another
channel or generation by the codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.channel_options import UNLIMITED, LossBudget, Overflow, Reconnect
from airflow_recovery.model.result_type import Consume, ResultType
from airflow_recovery.planning.logical import LogicalTopology
from airflow_recovery.planning.ordering import CycleFound, topological_order
from airflow_recovery.planning.pipelined_regions import region_numbers


class SinkGuarantee(str, Enum):
    """What becomes of a batch that a sink is given twice, or that is never committed."""

    CHANNEL_LOG = "channel log"
    """Its files count when the channel's log names them: exactly once, with the ledger."""

    EXACTLY_ONCE = "exactly once"
    """Elsewhere; its readers trust that nothing is missing."""

    FOREIGN = "foreign"
    """Elsewhere; a batch that comes again is there twice."""


@dataclass(frozen=True)
class VertexDeclaration:
    """What a vertex at a channel has declared. ``sink``: its guarantee, `None` for no sink.

    ``replays``: as a source, it can make again what it had read. The ``allow_...`` are the author's word that he knows
    what he gives up.
    """

    replays: bool = True
    is_stateful: bool = False
    sink: SinkGuarantee | None = None
    allow_approximate: bool = False
    allow_stateful_loss: bool = False
    allow_unknown_loss: bool = False


@dataclass(frozen=True)
class ChannelDeclaration:
    """What a ``PIPELINED_APPROXIMATE`` result has declared. ``max_bytes``: how far its consumer may be behind."""

    reconnect: Reconnect = Reconnect.REWIND
    overflow: Overflow = Overflow.BLOCK
    budget: LossBudget = UNLIMITED
    max_bytes: int = 256 * 1024 * 1024

    @property
    def may_lose(self) -> bool:
        """Whether it may lose records that were published."""
        return self.reconnect is Reconnect.LATEST or self.overflow is Overflow.DROP


class RefusalRule(str, Enum):
    """What a declaration breaks."""

    NO_CHANNEL = "no channel"
    ONE_APPLICATION = "both ends in one application"
    TWO_CONSUMERS = "two consumers"
    NEVER_STARTS = "streaming regions that wait for each other"
    TOO_FEW_SLOTS = "too few slots"
    EXACT_SINK = "sink that must not miss or repeat"
    NO_REPLAY = "source without replay"
    STATEFUL_LATEST = "latest with state"
    NO_BUDGET = "loss without a budget"
    DROP_WITHOUT_BUDGET = "drop with a budget of nothing"
    NO_ROOM = "no room"


@dataclass(frozen=True)
class Refusal:
    """``where`` names vertices or a result; ``message`` says what to change."""

    rule: RefusalRule
    where: str
    message: str

    def text(self) -> str:
        """One line."""
        return f"{self.where}: {self.message}"


def refusals(
    topology: LogicalTopology,
    channels: Mapping[str, ChannelDeclaration],
    vertices: Mapping[str, VertexDeclaration],
    *,
    max_active_tasks: int | None = None,
) -> tuple[Refusal, ...]:
    """Everything that is wrong with a job that asks for approximate recovery.

    ``channels`` by result, ``vertices`` by name; what is not declared has the defaults. ``max_active_tasks`` of the
    DAG, where it is known.
    """
    declared = _Declared(topology, channels, vertices)
    if not declared.results:
        advice = (
            "expected a PIPELINED_APPROXIMATE result, found none: approximate recovery is for streaming regions, "
            "which run at the same time; take BLOCKING results and the failover strategy 'region'"
        )
        return (Refusal(RefusalRule.NO_CHANNEL, "job", advice),)
    return (
        *declared.of_shape(),
        *declared.of_slots(max_active_tasks),
        *declared.of_vertices(),
        *declared.of_channels(),
    )


class _Declared:
    def __init__(
        self,
        topology: LogicalTopology,
        channels: Mapping[str, ChannelDeclaration],
        vertices: Mapping[str, VertexDeclaration],
    ) -> None:
        self._topology = topology
        self._channels = channels
        self._vertices = vertices
        self.results = [
            number for number, result in enumerate(topology.results) if result.type is ResultType.PIPELINED_APPROXIMATE
        ]
        # A region is one application, and a group is what channels make run at the same time.
        self._group_of = region_numbers(len(topology.regions), list(self._links(self.results)), ())

    def of_shape(self) -> Iterator[Refusal]:
        for result in self.results:
            name = self._topology.results[result].name
            readers = self._topology.readers_of[result]
            if len(readers) != 1:
                names = ", ".join(self._topology.edges[edge].consumer for edge in readers) or "none"
                yield Refusal(
                    RefusalRule.TWO_CONSUMERS,
                    name,
                    f"expected one consumer, found {names}: a channel has one view; give each consumer a result of its "
                    "own, or make it BLOCKING",
                )
        for result in self.results:
            if any(producer == consumer for producer, consumer in self._links([result])):
                yield Refusal(
                    RefusalRule.ONE_APPLICATION,
                    self._topology.results[result].name,
                    "expected producer and consumer in two applications, found them in one region: make it PIPELINED, "
                    "or cut what holds them together",
                )
        cycle = self._waiting_cycle()
        if cycle is not None:
            yield Refusal(
                RefusalRule.NEVER_STARTS,
                cycle,
                "these run at the same time, and one waits for another to finish, through a BLOCKING result: make that "
                "a channel too, or make the channel BLOCKING",
            )

    def of_slots(self, max_active_tasks: int | None) -> Iterator[Refusal]:
        for group in sorted({self._group(vertex) for result in self.results for vertex in self._ends(result)}):
            regions = [region for region, number in enumerate(self._group_of) if number == group]
            if max_active_tasks is not None and len(regions) > max_active_tasks:
                yield Refusal(
                    RefusalRule.TOO_FEW_SLOTS,
                    self._named(group),
                    f"expected max_active_tasks of at least {len(regions)}, since so many streaming regions run "
                    f"at the same time; found {max_active_tasks}: raise it, and give the pool {len(regions)} slots for "
                    "every active run",
                )

    def of_vertices(self) -> Iterator[Refusal]:
        for vertex in sorted({end for result in self.results for end in self._ends(result)}):
            name = self._topology.vertices[vertex].name
            declared = self._vertices.get(name, VertexDeclaration())
            if declared.sink in (SinkGuarantee.EXACTLY_ONCE, SinkGuarantee.FOREIGN) and not declared.allow_approximate:
                yield Refusal(
                    RefusalRule.EXACT_SINK,
                    name,
                    f"expected a sink that may miss or repeat a batch, found one that is {declared.sink.value}: write "
                    "files that the channel's log names, or say allow_approximate=True",
                )
            if not declared.replays and not declared.allow_unknown_loss:
                yield Refusal(
                    RefusalRule.NO_REPLAY,
                    name,
                    "expected a source that can replay, found one that can't: nobody will know how much a restart "
                    "loses; say allow_unknown_loss=True, or put a log before it",
                )
            if declared.is_stateful and not declared.allow_stateful_loss:
                for result in self._read_by(vertex):
                    if self._declared(result).reconnect is Reconnect.LATEST:
                        yield Refusal(
                            RefusalRule.STATEFUL_LATEST,
                            f"{name}, {self._topology.results[result].name}",
                            "expected reconnect='rewind', found 'latest' into a region that keeps state: its state "
                            "would miss what was skipped, for ever; say allow_stateful_loss=True, or take 'rewind'",
                        )

    def of_channels(self) -> Iterator[Refusal]:
        for result in self.results:
            name, channel = self._topology.results[result].name, self._declared(result)
            if channel.may_lose and not channel.budget.is_limited:
                yield Refusal(
                    RefusalRule.NO_BUDGET,
                    name,
                    "expected a loss budget, found none: reconnect='latest' and overflow='drop' lose records; set "
                    "max_lost_records or max_lost_fraction",
                )
            if channel.overflow is Overflow.DROP and channel.budget.allows_none:
                yield Refusal(
                    RefusalRule.DROP_WITHOUT_BUDGET,
                    name,
                    "expected a budget above 0, found 0 with overflow='drop': nothing could ever be dropped; take "
                    "overflow='block', or allow some loss",
                )
            if channel.max_bytes < 1:
                yield Refusal(
                    RefusalRule.NO_ROOM,
                    name,
                    f"expected max_bytes of at least 1, found {channel.max_bytes}: say how far the consumer may be "
                    "behind",
                )

    # --- the shape ---------------------------------------------------------------------------------------------------

    def _declared(self, result: int) -> ChannelDeclaration:
        return self._channels.get(self._topology.results[result].name, ChannelDeclaration())

    def _ends(self, result: int) -> Iterator[int]:
        yield self._topology.producer_of[result]
        yield from (self._topology.consumer_of[edge] for edge in self._topology.readers_of[result])

    def _links(self, results: list[int]) -> Iterator[tuple[int, int]]:
        """The regions that these results connect, as (producer, consumer)."""
        region_of = self._topology.region_of
        for result in results:
            producer, *consumers = self._ends(result)
            yield from ((region_of[producer], region_of[consumer]) for consumer in consumers)

    def _read_by(self, vertex: int) -> list[int]:
        read = [self._topology.result_of[edge] for edge in self._topology.inputs_of[vertex]]
        return [number for number in read if number in self.results]

    def _group(self, vertex: int) -> int:
        return self._group_of[self._topology.region_of[vertex]]

    def _waiting_cycle(self) -> str | None:
        """Groups that wait for each other: each starts as a whole, and only when what it waits for has finished."""
        waits: dict[int, list[int]] = {group: [] for group in sorted(self._group_of)}
        for number, result in enumerate(self._topology.results):
            if result.type.consume is Consume.AFTER_FINISH:
                for producer, consumer in self._links([number]):
                    waits[self._group_of[consumer]].append(self._group_of[producer])
        try:
            topological_order(waits)
        except CycleFound as error:
            groups = dict.fromkeys(number for number in error.cycle if isinstance(number, int))
            return " and ".join(self._named(group) for group in groups)
        return None

    def _named(self, group: int) -> str:
        vertices = range(len(self._topology.vertices))
        return ", ".join(self._topology.vertices[vertex].name for vertex in vertices if self._group(vertex) == group)
