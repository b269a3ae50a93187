"""Which subtasks restart where channels connect regions: FLIP-135's three milestones, as pure functions.

A ``PIPELINED_APPROXIMATE`` result is a channel between two applications that run at the same time. It glues no region.
Four rules, applied until nothing is added:

1. The region of the failed subtask restarts.
2. Where a restarting region reads what is not available, the region that makes it restarts, too.
3. Where a region restarts, every region that reads its results restarts, too. By a channel only as the strategy says:
   under `ApproximateStrategy.SINGLE` a reader by a channel goes on.
4. What can't be connected again *starts over*: all regions that channels connect with it restart, on a new generation
   of these channels, from the beginning. That is FLIP-135's fall-back to regional failover. It happens where a channel
   is lost or has ended, and under `ApproximateStrategy.SINK` where a region restarts that feeds a channel.

A channel is available while its log is there and nothing of it was purged, whether or not its producer runs. Flink
asked its partition tracker, which never tracks such a partition, so that every failure restarted the producers too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.result_type import ResultType
from reference.execution_topology import ExecutionTopology
from reference.logical import readable_again


class ApproximateStrategy(str, Enum):
    """How much a failure restarts, in a job with channels."""

    SINK = "approximate-sink"
    """Milestone one: a region that feeds no channel restarts alone; else all that channels connect with it."""

    DOWNSTREAM = "approximate-downstream"
    """Milestone two: the failed region and all that read from it, directly or not."""

    SINGLE = "approximate-single"
    """Milestone three: the failed region alone. Where its output has changed, as `DOWNSTREAM`."""


class RestartWhy(str, Enum):
    """Why a subtask restarts. The first cause that was found is the one that is told."""

    FAILED = "failed"
    ONE_REGION = "in one region with"
    INPUT_LOST = "what it makes is not available to"
    INPUT_REMADE = "reads a result that is made again by"
    DOWNSTREAM = "reads by a channel from"
    CONNECTED = "starts over with"


@dataclass(frozen=True)
class RestartedSubtask:
    """An execution vertex that restarts; ``cause`` is the one that it restarts for, `None` for the failed one."""

    vertex: int
    why: RestartWhy
    cause: int | None


@dataclass(frozen=True)
class ApproximateRestart:
    """What restarts, and what becomes of the channels.

    ``strategy`` is the one that was followed, ``escalated`` says that another one was asked for. ``new_generation``:
    the results whose channels start over; of these, ``altered`` do so only because their output is another one now, so
    that their producer goes on at its checkpoint. ``reconnected``: those whose consumer comes back, and goes on at its
    checkpoint or at the head. ``unknown_at_origin``: restarting subtasks that can't make again what they had read and
    not published, so that nobody knows how much is lost.
    """

    strategy: ApproximateStrategy
    escalated: bool
    restarts: tuple[RestartedSubtask, ...]
    new_generation: frozenset[str]
    altered: frozenset[str]
    reconnected: frozenset[str]
    unknown_at_origin: tuple[int, ...]

    @property
    def vertices(self) -> list[int]:
        """The execution vertices to restart, ascending."""
        return [restart.vertex for restart in self.restarts]

    def told(self, topology: ExecutionTopology) -> list[str]:
        """One line a subtask."""
        name = topology.graph.vertex_name
        return [
            f"{name(restart.vertex)}: {restart.why.value}"
            + ("" if restart.cause is None else f" {name(restart.cause)}")
            for restart in self.restarts
        ]


def approximate_restart(
    topology: ExecutionTopology,
    failed: int,
    strategy: ApproximateStrategy,
    *,
    available: Callable[[int], bool],
    lost: int | None = None,
    changed: Callable[[str], bool] = lambda result: False,
    replays: Callable[[str], bool] = lambda vertex: True,
) -> ApproximateRestart:
    """Decide what restarts with execution vertex ``failed``.

    ``available(partition)``: is it there to be read (again)? ``lost`` counts as unavailable in this one decision.
    ``changed(result)``: the schema or the subpartitions of that channel are other ones now. ``replays(vertex)``: that
    source can make again what an earlier attempt had read. Raises `UnknownVertex`.
    """
    topology.graph.job_vertex_of(failed)
    if lost is not None:
        topology.graph.result_of(lost)
    altered = frozenset(filter(changed, _channels_fed_by(topology, failed)))
    escalated = strategy is ApproximateStrategy.SINGLE and bool(altered)
    followed = ApproximateStrategy.DOWNSTREAM if escalated else strategy
    walk = _Walk(topology, followed, lambda partition: partition != lost and available(partition))
    walk.restart(range(failed, failed + 1), RestartWhy.FAILED, None)
    walk.close()
    restarts = tuple(RestartedSubtask(each, *walk.found[each]) for each in sorted(walk.found))
    names = topology.graph.vertex_name
    return ApproximateRestart(
        strategy=followed,
        escalated=escalated,
        restarts=restarts,
        new_generation=altered | walk.new_generation,
        altered=altered - walk.new_generation,
        reconnected=frozenset(walk.read - walk.new_generation - altered),
        unknown_at_origin=tuple(restart.vertex for restart in restarts if not replays(names(restart.vertex).vertex)),
    )


def _channels_fed_by(topology: ExecutionTopology, vertex: int) -> list[str]:
    """The channels that the region of an execution vertex feeds, by the names of their results."""
    found: list[str] = []
    for vertices in topology.whole_regions(range(vertex, vertex + 1)):
        for edge, _ in topology.graph.groups_fed_by(vertices):
            if _is_channel(topology, edge):
                found.append(topology.logical.edges[edge].result)
    return found


def _is_channel(topology: ExecutionTopology, edge: int) -> bool:
    return topology.logical.results[topology.logical.result_of[edge]].type is ResultType.PIPELINED_APPROXIMATE


class _Walk:
    """The four rules. ``found``: why each execution vertex restarts, and for which one."""

    def __init__(
        self, topology: ExecutionTopology, strategy: ApproximateStrategy, available: Callable[[int], bool]
    ) -> None:
        self._topology = topology
        self._strategy = strategy
        self._available = available
        self._anew: set[int] = set()
        self._queue: list[range] = []
        self.found: dict[int, tuple[RestartWhy, int | None]] = {}
        self.new_generation: set[str] = set()
        self.read: set[str] = set()

    def restart(self, vertices: range, why: RestartWhy, cause: int | None, *, anew: bool = False) -> None:
        """All regions that these execution vertices, all of one job vertex, have a part in."""
        for region in self._topology.whole_regions(vertices):
            starts_over = anew or (
                self._strategy is ApproximateStrategy.SINK and bool(_channels_fed_by(self._topology, region.start))
            )
            # Who restarts already, and is to start over as well, is looked at again.
            if all(each in (self._anew if starts_over else self.found) for each in region):
                continue
            for each in region:
                is_named = each in vertices
                self.found.setdefault(each, (why, cause) if is_named else (RestartWhy.ONE_REGION, vertices.start))
            if starts_over:
                self._anew.update(region)
            self._queue.append(region)

    def close(self) -> None:
        """Apply the rules until nothing is added."""
        while self._queue:
            vertices = self._queue.pop()
            self._look_upstream(vertices)
            self._look_downstream(vertices)

    def _look_upstream(self, vertices: range) -> None:
        graph, logical = self._topology.graph, self._topology.logical
        for edge, groups in graph.groups_read_by(vertices):
            partitions = graph.partitions_in(edge, groups)
            result = logical.results[logical.result_of[edge]]
            is_channel = _is_channel(self._topology, edge)
            if is_channel:
                self.read.add(result.name)
            starts_over = is_channel and vertices.start in self._anew
            if starts_over:
                self.new_generation.add(result.name)
                self.restart(graph.producers_of(edge, partitions), RestartWhy.CONNECTED, vertices.start, anew=True)
                continue
            readable = readable_again(result.type)
            missing = [partition for partition in partitions if not (readable and self._available(partition))]
            for partition in missing:
                producer = graph.producers_of(edge, range(partition, partition + 1))
                self.restart(producer, RestartWhy.INPUT_LOST, vertices.start, anew=is_channel)

    def _look_downstream(self, vertices: range) -> None:
        graph, logical = self._topology.graph, self._topology.logical
        for edge, groups in graph.groups_fed_by(vertices):
            consumers = graph.consumers_of(edge, groups)
            if not _is_channel(self._topology, edge):
                self.restart(consumers, RestartWhy.INPUT_REMADE, vertices.start)
            elif vertices.start in self._anew:
                self.new_generation.add(logical.edges[edge].result)
                self.restart(consumers, RestartWhy.CONNECTED, vertices.start, anew=True)
            elif self._strategy is not ApproximateStrategy.SINGLE:
                self.restart(consumers, RestartWhy.DOWNSTREAM, vertices.start)
