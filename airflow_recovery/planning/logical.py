"""The logical topology: job vertices, results and edges, and the regions they form before anything is expanded.

Names on the outside, numbers on the inside: the position of a vertex, a result or an edge is its number, so that what
is known of 100,000 of them is a list and not an object each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.result_type import ReleasedBy, ResultType
from airflow_recovery.planning.graph import JobGraph
from airflow_recovery.planning.pipelined_regions import region_numbers


class DistributionPattern(str, Enum):
    """Which subtasks of the consumer read which subtasks of the producer."""

    ALL_TO_ALL = "ALL_TO_ALL"
    """Each reads all."""

    POINTWISE = "POINTWISE"
    """Each reads its share: subtask i reads subtask i where both have as many."""


@dataclass(frozen=True, slots=True)
class LogicalVertex:
    """A job vertex. ``parallelism`` `None`: decided at run time.

    Vertices of one ``co_location`` group are one unit: subtask i of each is in the same region, hence in the same
    application. They need the same parallelism.
    """

    name: str
    parallelism: int | None = 1
    co_location: str | None = None


@dataclass(frozen=True, slots=True)
class LogicalResult:
    """What ``producer`` makes: one partition a subtask. A vertex can have several results, of different types."""

    name: str
    producer: str
    type: ResultType


@dataclass(frozen=True, slots=True)
class LogicalEdge:
    """``consumer`` reads ``result``."""

    result: str
    consumer: str
    pattern: DistributionPattern = DistributionPattern.ALL_TO_ALL


class LogicalTopology:
    """Vertices in topological order, what they make and what they read. Immutable.

    Raises `JobDefinitionError` where a name is unknown or used twice, or a producer does not come before its consumer.
    """

    def __init__(
        self, vertices: Iterable[LogicalVertex], results: Iterable[LogicalResult], edges: Iterable[LogicalEdge]
    ) -> None:
        self.vertices = tuple(vertices)
        self.results = tuple(results)
        self.edges = tuple(edges)
        self.vertex_number = _numbered("vertex", [vertex.name for vertex in self.vertices])
        self.result_number = _numbered("result", [result.name for result in self.results])
        self.producer_of = [
            _known(self.vertex_number, result.producer, f"result {result.name!r}") for result in self.results
        ]
        """The vertex of every result."""
        self.result_of = [_known(self.result_number, edge.result, "an edge") for edge in self.edges]
        """The result of every edge."""
        self.consumer_of = [_known(self.vertex_number, edge.consumer, "an edge") for edge in self.edges]
        """The reading vertex of every edge."""
        for producer, consumer in zip(map(self.producer_of.__getitem__, self.result_of), self.consumer_of, strict=True):
            if producer >= consumer:
                raise JobDefinitionError(
                    f"expected producers before consumers, found {self.vertices[consumer].name!r} not after its input "
                    f"{self.vertices[producer].name!r}: hand the vertices in in topological order, without cycles"
                )
        self.results_of = _grouped(self.producer_of, len(self.vertices))
        """The results of every vertex."""
        self.inputs_of = _grouped(self.consumer_of, len(self.vertices))
        """The edges by which every vertex reads."""
        self.readers_of = _grouped(self.result_of, len(self.results))
        """The edges by which every result is read."""
        self.must_run_together = [result.type.must_run_together for result in self.results]
        """Of every result."""
        self.readable_again = [result.type.readable_again for result in self.results]
        """Of every result."""
        self.released_by_us = [
            result.type.released_by is ReleasedBy.SCHEDULER and not result.type.persistent for result in self.results
        ]
        """Of every result: it goes when its last reader is done."""
        self.co_located_with = _co_located_with(self.vertices)
        """For every vertex of a co-location group but its first one: that first one."""
        self.region_of = self._region_numbers()
        """The logical region of every vertex, numbered in topological order."""
        self.regions = _grouped(self.region_of, max(self.region_of, default=-1) + 1)
        """The vertices of every logical region, in topological order."""

    @classmethod
    def of(cls, job: JobGraph) -> LogicalTopology:
        """The topology of a declared job: every vertex has one result, which bears its name."""
        ordered = job.in_topological_order
        return cls(
            [LogicalVertex(vertex.name, vertex.parallelism, vertex.co_location) for vertex in ordered],
            [LogicalResult(vertex.name, vertex.name, vertex.result) for vertex in ordered],
            [
                LogicalEdge(name, vertex.name, _POINTWISE if name in vertex.pointwise else _ALL_TO_ALL)
                for vertex in ordered
                for name in vertex.inputs
            ],
        )

    def _region_numbers(self) -> Sequence[int]:
        # Flink finds cycles only inside what it builds at once. Here they are found over the whole job, first: a cycle
        # between two logical regions makes them one, and the expansion looks for cycles inside each region alone.
        glued = list(self.co_located_with.items())
        loose: list[tuple[int, int]] = []
        for result, consumer in zip(self.result_of, self.consumer_of, strict=True):
            (glued if self.must_run_together[result] else loose).append((self.producer_of[result], consumer))
        return region_numbers(len(self.vertices), glued, loose)


_ALL_TO_ALL = DistributionPattern.ALL_TO_ALL
_POINTWISE = DistributionPattern.POINTWISE


def _numbered(kind: str, names: Sequence[str]) -> dict[str, int]:
    numbers = {name: number for number, name in enumerate(names)}
    if len(numbers) < len(names):
        twice = next(name for number, name in enumerate(names) if numbers[name] != number)
        raise JobDefinitionError(f"expected unique {kind} names, found {twice!r} twice: rename one of them")
    return numbers


def _known(numbers: dict[str, int], name: str, whose: str) -> int:
    if name not in numbers:
        raise JobDefinitionError(f"{whose} names {name!r}, which is not there: declare it, or correct the name")
    return numbers[name]


def _grouped(group_of: Sequence[int], count: int) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for member, group in enumerate(group_of):
        groups[group].append(member)
    return groups


def _co_located_with(vertices: Sequence[LogicalVertex]) -> dict[int, int]:
    first: dict[str, int] = {}
    return {
        number: first[vertex.co_location]
        for number, vertex in enumerate(vertices)
        if vertex.co_location is not None and first.setdefault(vertex.co_location, number) != number
    }
