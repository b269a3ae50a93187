"""The logical topology of a job: its vertices, their results, the edges between them, and the regions they form.

Names on the outside, numbers on the inside: the position of a vertex, a result or an edge is its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.planning.graph import JobGraph
from airflow_recovery.planning.pipelined_regions import region_numbers


@dataclass(frozen=True, slots=True)
class LogicalVertex:
    """A job vertex. Vertices of one ``co_location`` group are in the same region, hence in the same application."""

    name: str
    co_location: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class LogicalResult:
    """What ``producer`` makes. A vertex can have several results, of different types."""

    name: str
    producer: str
    type: ResultType


@dataclass(frozen=True, slots=True)
class LogicalEdge:
    """``consumer`` reads ``result``."""

    result: str
    consumer: str


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
        vertex_number = _numbered("vertex", [vertex.name for vertex in self.vertices])
        result_number = _numbered("result", [result.name for result in self.results])
        self.producer_of = [
            _known(vertex_number, result.producer, f"result {result.name!r}") for result in self.results
        ]
        """The vertex of every result."""
        self.result_of = [_known(result_number, edge.result, "an edge") for edge in self.edges]
        """The result of every edge."""
        self.consumer_of = [_known(vertex_number, edge.consumer, "an edge") for edge in self.edges]
        """The reading vertex of every edge."""
        for producer, consumer in zip(map(self.producer_of.__getitem__, self.result_of), self.consumer_of, strict=True):
            if producer >= consumer:
                raise JobDefinitionError(
                    f"expected producers before consumers, found {self.vertices[consumer].name!r} not after its input "
                    f"{self.vertices[producer].name!r}: hand the vertices in in topological order, without cycles",
                    code="logical-order",
                )
        self.inputs_of = grouped(self.consumer_of, len(self.vertices))
        """The edges by which every vertex reads."""
        self.readers_of = grouped(self.result_of, len(self.results))
        """The edges by which every result is read."""
        self.region_of = self._region_numbers()
        """The logical region of every vertex, numbered in topological order."""
        self.regions = grouped(self.region_of, max(self.region_of, default=-1) + 1)
        """The vertices of every logical region, in topological order."""

    @classmethod
    def of(cls, job: JobGraph) -> LogicalTopology:
        """The topology of a declared job: every vertex has one result, which bears its name."""
        ordered = job.in_topological_order
        return cls(
            [LogicalVertex(vertex.name, co_location=vertex.co_location) for vertex in ordered],
            [LogicalResult(vertex.name, vertex.name, vertex.result) for vertex in ordered],
            [LogicalEdge(name, vertex.name) for vertex in ordered for name in vertex.inputs],
        )

    def _region_numbers(self) -> Sequence[int]:
        glued = list(co_located_with(self.vertices).items())
        loose: list[tuple[int, int]] = []
        for result, consumer in zip(self.result_of, self.consumer_of, strict=True):
            links = glued if self.results[result].type.must_run_together else loose
            links.append((self.producer_of[result], consumer))
        return region_numbers(len(self.vertices), glued, loose)


def _numbered(kind: str, names: Sequence[str]) -> dict[str, int]:
    numbers = {name: number for number, name in enumerate(names)}
    if len(numbers) < len(names):
        twice = next(name for number, name in enumerate(names) if numbers[name] != number)
        raise JobDefinitionError(
            f"expected unique {kind} names, found {twice!r} twice: rename one of them", code="logical-name-twice"
        )
    return numbers


def _known(numbers: dict[str, int], name: str, whose: str) -> int:
    if name not in numbers:
        raise JobDefinitionError(
            f"{whose} names {name!r}, which is not there: declare it, or correct the name", code="logical-name-unknown"
        )
    return numbers[name]


def grouped(group_of: Sequence[int], count: int) -> list[list[int]]:
    """The members of every one of ``count`` groups, ascending. ``group_of``: the group of every member."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for member, group in enumerate(group_of):
        groups[group].append(member)
    return groups


def co_located_with(vertices: Sequence[LogicalVertex]) -> dict[int, int]:
    """For every vertex of a co-location group but its first one: that first one. Numbers are positions."""
    first: dict[str, int] = {}
    return {
        number: first[vertex.co_location]
        for number, vertex in enumerate(vertices)
        if vertex.co_location is not None and first.setdefault(vertex.co_location, number) != number
    }
