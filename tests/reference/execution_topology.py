"""Execution-level pipelined regions: the subtasks that are one unit of restart (FLIP-1)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, repeat

from airflow_recovery.errors import JobDefinitionError, UnknownRegion
from airflow_recovery.planning.pipelined_regions import region_numbers
from reference.execution_graph import ExecutionGraph
from reference.logical import DistributionPattern, LogicalTopology


class ExecutionTopology:
    """The subtasks of a job, cut into regions: numbers from 0, producers first within one `initialise`.

    A region is a few ranges of execution vertices, each range within one job vertex. Logical regions are expanded one
    at a time, as in Flink, and each comes out in one of these ways:

    - One job vertex: every subtask is a region of its own.
    - Pointwise edges only: subtask i of each is a region where all have the same parallelism, else the component search
      finds them, with cycles merged.
    - An all-to-all edge inside: one region. Whatever holds a logical region together leads from each of its subtasks to
      some subtask of every one of its vertices, and back; the all-to-all edge leads on from there to all.

    It only grows: a number once given, to a vertex or a region, never changes. Co-located vertices need the same
    parallelism.
    """

    def __init__(self, logical: LogicalTopology, parallelism: Mapping[str, int] | None = None) -> None:
        self.logical = logical
        self.graph = ExecutionGraph(logical)
        self.region_of = array("q")
        """The region of every execution vertex."""
        self._decided: dict[int, int] = {}
        self._pending = list(range(len(logical.regions)))  # logical regions, in topological order
        self._regions_of = [range(0)] * len(logical.regions)
        # Region r is the ranges number _first_range[r] up to but not including _first_range[r + 1].
        self._first_range = array("q", [0])
        self._range_start = array("q")
        self._range_stop = array("q")
        self._decide(
            {number: each.parallelism for number, each in enumerate(logical.vertices) if each.parallelism is not None}
        )
        self.initialise(parallelism or {})

    @property
    def region_count(self) -> int:
        """How many regions there are so far."""
        return len(self._first_range) - 1

    def initialise(self, parallelism: Mapping[str, int]) -> range:
        """Take in the parallelism that was decided for some job vertices; return the regions that came into being.

        A logical region is expanded as soon as the parallelism of all its vertices is known and everything it reads is
        expanded. Raises `JobDefinitionError` for an unknown name, and where it contradicts an earlier decision; then
        nothing has changed.
        """
        numbers = self.logical.vertex_number
        unknown = parallelism.keys() - numbers
        if unknown:
            raise JobDefinitionError(
                f"expected the parallelism of vertices of this topology, found {', '.join(sorted(unknown))}: "
                "correct the names"
            )
        self._decide({numbers[name]: count for name, count in parallelism.items()})
        ready: list[int] = []
        waiting: list[int] = []
        for region in self._pending:
            (ready if self._expand(region) else waiting).append(region)
        self._pending = waiting
        return self._add_regions(ready)

    # --- reading -----------------------------------------------------------------------------------------------------

    def ranges_of(self, region: int) -> list[range]:
        """The execution vertices of a region, as ranges within one job vertex each, producers first."""
        if not 0 <= region < self.region_count:
            raise UnknownRegion(f"no region {region} in this topology, which has {self.region_count}")
        return [
            range(self._range_start[at], self._range_stop[at])
            for at in range(self._first_range[region], self._first_range[region + 1])
        ]

    def region_of_vertex(self, execution_vertex: int) -> int:
        """The region that an execution vertex belongs to. Raises `UnknownVertex`."""
        self.graph.job_vertex_of(execution_vertex)  # a negative index would find something
        return self.region_of[execution_vertex]

    def whole_regions(self, vertices: range) -> Sequence[range]:
        """All of every region that these execution vertices, all of one job vertex, have a part in."""
        logical_region = self.logical.region_of[self.graph.job_vertex_of(vertices.start)]
        if len(self.logical.regions[logical_region]) == 1:
            return (vertices,)
        regions = sorted(set(self.region_of[vertices.start : vertices.stop]))
        return [range_ for region in regions for range_ in self.ranges_of(region)]

    def vertices_of(self, regions: Iterable[int]) -> list[int]:
        """The execution vertices of some regions, ascending."""
        numbers: list[int] = []
        for region in regions:
            for range_ in self.ranges_of(region):
                numbers.extend(range_)
        numbers.sort()
        return numbers

    def regions_of(self, logical_region: int) -> range:
        """The regions that a logical region was expanded into; none before it is."""
        return self._regions_of[logical_region]

    # --- growing -----------------------------------------------------------------------------------------------------

    def _decide(self, decisions: Mapping[int, int]) -> None:
        for number, count in decisions.items():
            before = self._decided.get(number, count)
            if before != count or count < 1:
                raise JobDefinitionError(
                    f"vertex {self.logical.vertices[number].name!r}: expected a parallelism of "
                    f"{before if before != count else 'at least 1'}, found {count}: it is decided once, for ever"
                )
        for member, first in self.logical.co_located_with.items():
            counts = [decisions.get(each, self._decided.get(each)) for each in (first, member)]
            if None not in counts and counts[0] != counts[1]:
                one, other = self.logical.vertices[first], self.logical.vertices[member]
                raise JobDefinitionError(
                    f"expected one parallelism for the co-location group {one.co_location!r}, found {counts[0]} of "
                    f"{one.name!r} and {counts[1]} of {other.name!r}: give both the same, or take one out of the group"
                )
        self._decided.update(decisions)

    def _expand(self, logical_region: int) -> bool:
        members = self.logical.regions[logical_region]
        if not all(member in self._decided for member in members):
            return False
        for member in members:
            for edge in self.logical.inputs_of[member]:
                producer = self.logical.producer_of[self.logical.result_of[edge]]
                if self.logical.region_of[producer] != logical_region and not self.graph.is_initialised(producer):
                    return False
        for member in members:
            self.graph.initialise(member, self._decided[member])
        return True

    def _add_regions(self, logical_regions: Iterable[int]) -> range:
        before = self.region_count
        for logical_region in logical_regions:
            first = self.region_count
            subtasks = [self.graph.subtasks(member) for member in self.logical.regions[logical_region]]
            inner = self._inner_edges(logical_region)
            if len(subtasks) == 1:
                self._add_each(subtasks[0])
            elif any(self.logical.edges[edge].pattern is DistributionPattern.ALL_TO_ALL for edge in inner):
                self._add_one(subtasks)
            elif len(set(map(len, subtasks))) == 1:
                self._add_columns(subtasks)
            else:
                self._add_components(logical_region, subtasks, inner)
            self._regions_of[logical_region] = range(first, self.region_count)
        return range(before, self.region_count)

    def _inner_edges(self, logical_region: int) -> list[int]:
        return [
            edge
            for member in self.logical.regions[logical_region]
            for edge in self.logical.inputs_of[member]
            if self.logical.region_of[self.logical.producer_of[self.logical.result_of[edge]]] == logical_region
        ]

    def _add_each(self, subtasks: range) -> None:
        first, ranges = self.region_count, len(self._range_start)
        self.region_of.extend(range(first, first + len(subtasks)))
        self._range_start.extend(subtasks)
        self._range_stop.extend(range(subtasks.start + 1, subtasks.stop + 1))
        self._first_range.extend(range(ranges + 1, ranges + 1 + len(subtasks)))

    def _add_one(self, members: Iterable[range]) -> None:
        region = self.region_count
        for subtasks in members:
            self.region_of.extend(repeat(region, len(subtasks)))
            self._range_start.append(subtasks.start)
            self._range_stop.append(subtasks.stop)
        self._first_range.append(len(self._range_start))

    def _add_columns(self, members: Sequence[range]) -> None:
        first, ranges, count = self.region_count, len(self._range_start), len(members[0])
        for _ in members:
            self.region_of.extend(range(first, first + count))
        for column in zip(*members, strict=True):
            self._range_start.extend(column)
            self._range_stop.extend(vertex + 1 for vertex in column)
        step = len(members)
        self._first_range.extend(range(ranges + step, ranges + step * count + 1, step))

    def _add_components(self, logical_region: int, members: Sequence[range], inner_edges: Iterable[int]) -> None:
        # A logical region's subtasks have consecutive numbers: moved to begin at 0 for the search.
        base = members[0].start
        glued: list[tuple[int, int]] = []
        loose: list[tuple[int, int]] = []
        for edge in inner_edges:
            links = glued if self.logical.must_run_together[self.logical.result_of[edge]] else loose
            links += [(producer - base, consumer - base) for producer, consumer in self.graph.links(edge)]
        for member, subtasks in zip(self.logical.regions[logical_region], members, strict=True):
            first = self.logical.co_located_with.get(member)
            if first is not None:
                co_located = self.graph.subtasks(first)
                glued += [(left - base, right - base) for left, right in zip(co_located, subtasks, strict=True)]
        numbers = region_numbers(members[-1].stop - base, glued, loose)

        self.region_of.extend(map(self.region_count.__add__, numbers))
        ranges: list[list[range]] = [[] for _ in range(max(numbers) + 1)]
        for subtasks in members:
            for number, run in _runs(numbers[subtasks.start - base : subtasks.stop - base]):
                ranges[number].append(range(subtasks.start + run.start, subtasks.start + run.stop))
        for range_ in ranges:
            self._range_start.extend(one.start for one in range_)
            self._range_stop.extend(one.stop for one in range_)
            self._first_range.append(len(self._range_start))


def _runs(values: Sequence[int]) -> Iterator[tuple[int, range]]:
    """Every run of equal values, with the positions that it covers."""
    start = 0
    for value, run in groupby(values):
        stop = start + len(list(run))
        yield value, range(start, stop)
        start = stop
