"""Job vertices expanded into subtasks: execution vertices, result partitions and partition groups, all of them numbers.

The subtasks of a job vertex have consecutive numbers, and so have the partitions of a result and the groups of an
edge. So one number an edge, result or vertex is all that is stored; which partitions a subtask reads is arithmetic.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from airflow_recovery.errors import JobDefinitionError, RecoveryError
from reference.distribution import Wiring, wiring
from reference.logical import DistributionPattern, LogicalTopology


class UnknownVertex(RecoveryError, KeyError):
    """An execution vertex, partition or partition group that the topology does not hold."""


class PartitionUnavailable(RecoveryError):
    """The partition ``result[subtask]`` could not be read because it is not there: its producer must run again."""

    def __init__(self, result: str, subtask: int = 0) -> None:
        super().__init__(f"partition {result}[{subtask}] is not there: its producer must run again")
        self.result = result
        self.subtask = subtask


@dataclass(frozen=True, slots=True)
class ExecutionVertexId:
    """A subtask by name: ``by_route[3]``."""

    vertex: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex}[{self.subtask}]"


@dataclass(frozen=True, slots=True)
class ResultPartitionId:
    """What one subtask makes of one result, by name: ``by_route[3]``."""

    result: str
    subtask: int

    def __str__(self) -> str:
        return f"{self.result}[{self.subtask}]"


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """Partitions of ``result``, and the execution vertices that read exactly these, by one edge. Ranges of numbers."""

    number: int
    result: int
    partitions: range
    consumers: range


class ExecutionGraph:
    """What is initialised of a logical topology. It only grows, and a number once given never changes.

    Numbers of vertices, partitions and groups are three separate sequences from 0. The numbers depend on the order of
    initialisation, the names do not: what is stored or sent elsewhere goes by name. An unknown number or name raises
    `UnknownVertex`.
    """

    def __init__(self, logical: LogicalTopology) -> None:
        self.logical = logical
        self.vertex_count = 0
        self.partition_count = 0
        self.group_count = 0
        self._parallelism: list[int] = [0] * len(logical.vertices)  # 0: not initialised
        self._first_vertex = [0] * len(logical.vertices)
        self._first_partition = [0] * len(logical.results)
        self._first_group = [0] * len(logical.edges)
        self._wiring = [_NOT_WIRED] * len(logical.edges)
        self._job_vertex_of = array("q")  # of every execution vertex: the one that is asked for at every step
        # In the order of initialisation, hence ascending: where each one's numbers begin, and whose they are.
        self._partition_starts, self._partition_order = array("q"), array("q")
        self._group_starts, self._group_order = array("q"), array("q")

    # --- growing -----------------------------------------------------------------------------------------------------

    def is_initialised(self, vertex: int) -> bool:
        """Whether the job vertex has its subtasks."""
        return self._parallelism[vertex] > 0

    def initialise(self, vertex: int, parallelism: int) -> None:
        """Give a job vertex its subtasks, its partitions, and its place in the groups that it reads.

        Everything it reads must be initialised. A second time with the same parallelism does nothing.
        """
        logical = self.logical
        if self._parallelism[vertex] == parallelism:
            return
        if parallelism < 1 or self._parallelism[vertex]:
            raise JobDefinitionError(
                f"vertex {logical.vertices[vertex].name!r}: expected a parallelism of "
                f"{self._parallelism[vertex] or 'at least 1'}, found {parallelism}: it is decided once, for ever"
            )
        for edge in logical.inputs_of[vertex]:
            producers = self._parallelism[logical.producer_of[logical.result_of[edge]]]
            if not producers:
                raise JobDefinitionError(
                    f"vertex {logical.vertices[vertex].name!r}: expected its input "
                    f"{logical.edges[edge].result!r} to be initialised before it: initialise producers first"
                )
            wired = wiring(logical.edges[edge].pattern, producers, parallelism)
            self._wiring[edge] = wired
            self._first_group[edge] = self.group_count
            self._group_starts.append(self.group_count)
            self._group_order.append(edge)
            self.group_count += wired.groups
        for result in logical.results_of[vertex]:
            self._first_partition[result] = self.partition_count
            self._partition_starts.append(self.partition_count)
            self._partition_order.append(result)
            self.partition_count += parallelism
        self._parallelism[vertex] = parallelism
        self._first_vertex[vertex] = self.vertex_count
        self._job_vertex_of.extend(repeat(vertex, parallelism))
        self.vertex_count += parallelism

    # --- names -------------------------------------------------------------------------------------------------------

    def subtasks(self, vertex: int) -> range:
        """The execution vertices of a job vertex; none before it is initialised."""
        first = self._first_vertex[vertex]
        return range(first, first + self._parallelism[vertex])

    def vertex_id(self, vertex: str, subtask: int = 0) -> int:
        """The number of a subtask."""
        number = self.logical.vertex_number.get(vertex)
        if number is None or not 0 <= subtask < self._parallelism[number]:
            raise UnknownVertex(f"no execution vertex {vertex}[{subtask}] in this topology{self._has(number)}")
        return self._first_vertex[number] + subtask

    def vertex_name(self, execution_vertex: int) -> ExecutionVertexId:
        """The name of a subtask."""
        vertex = self.job_vertex_of(execution_vertex)
        return ExecutionVertexId(self.logical.vertices[vertex].name, execution_vertex - self._first_vertex[vertex])

    def partition_id(self, result: str, subtask: int = 0) -> int:
        """The number of a partition."""
        number = self.logical.result_number.get(result)
        producer = None if number is None else self.logical.producer_of[number]
        if number is None or producer is None or not 0 <= subtask < self._parallelism[producer]:
            raise UnknownVertex(f"no partition {result}[{subtask}] in this topology{self._has(producer)}")
        return self._first_partition[number] + subtask

    def partition_name(self, partition: int) -> ResultPartitionId:
        """The name of a partition."""
        result = self.result_of(partition)
        return ResultPartitionId(self.logical.results[result].name, partition - self._first_partition[result])

    def job_vertex_of(self, execution_vertex: int) -> int:
        """The job vertex whose subtask this is."""
        if not 0 <= execution_vertex < self.vertex_count:
            raise UnknownVertex(
                f"no execution vertex {execution_vertex} in this topology, which has {self.vertex_count}"
            )
        return self._job_vertex_of[execution_vertex]

    def result_of(self, partition: int) -> int:
        """The result that the partition belongs to."""
        if not 0 <= partition < self.partition_count:
            raise UnknownVertex(f"no partition {partition} in this topology, which has {self.partition_count}")
        return self._partition_order[bisect_right(self._partition_starts, partition) - 1]

    # --- who reads what ----------------------------------------------------------------------------------------------

    def producer_of(self, partition: int) -> int:
        """The execution vertex that makes a partition."""
        result = self.result_of(partition)
        return partition - self._first_partition[result] + self._first_vertex[self.logical.producer_of[result]]

    def producers_of(self, edge: int, partitions: range) -> range:
        """The execution vertices that make these partitions, all of the result that the edge reads."""
        result = self.logical.result_of[edge]
        return _moved(partitions, self._first_vertex[self.logical.producer_of[result]] - self._first_partition[result])

    def group(self, number: int) -> PartitionGroup:
        """One group as an object. Two of the same number are equal."""
        if not 0 <= number < self.group_count:
            raise UnknownVertex(f"no partition group {number} in this topology, which has {self.group_count}")
        edge = self._group_order[bisect_right(self._group_starts, number) - 1]
        groups = range(number, number + 1)
        return PartitionGroup(
            number, self.logical.result_of[edge], self.partitions_in(edge, groups), self.consumers_of(edge, groups)
        )

    def groups_read_by(self, vertices: range) -> list[tuple[int, range]]:
        """``(edge, groups)`` of everything that these execution vertices, all of one job vertex, read."""
        vertex = self.job_vertex_of(vertices.start)
        subtasks = _moved(vertices, -self._first_vertex[vertex])
        return [
            (edge, _moved(self._wiring[edge].groups_read_by(subtasks), self._first_group[edge]))
            for edge in self.logical.inputs_of[vertex]
        ]

    def groups_fed_by(self, vertices: range) -> list[tuple[int, range]]:
        """``(edge, groups)`` by which anything that these execution vertices, all of one job vertex, make is read.

        Readers that are not initialised yet are left out.
        """
        vertex = self.job_vertex_of(vertices.start)
        subtasks = _moved(vertices, -self._first_vertex[vertex])
        return [
            (edge, _moved(self._wiring[edge].groups_holding(subtasks), self._first_group[edge]))
            for result in self.logical.results_of[vertex]
            for edge in self.logical.readers_of[result]
            if self._wiring[edge] is not _NOT_WIRED
        ]

    def partitions_in(self, edge: int, groups: range) -> range:
        """The partitions of these groups of one edge."""
        partitions = self._wiring[edge].partitions_in(_moved(groups, -self._first_group[edge]))
        return _moved(partitions, self._first_partition[self.logical.result_of[edge]])

    def consumers_of(self, edge: int, groups: range) -> range:
        """The execution vertices that read these groups of one edge."""
        consumers = self._wiring[edge].consumers_of(_moved(groups, -self._first_group[edge]))
        return _moved(consumers, self._first_vertex[self.logical.consumer_of[edge]])

    def links(self, edge: int) -> Iterator[tuple[int, int]]:
        """Every ``(producer, consumer)`` of an edge, as execution vertices. For pointwise edges: all-to-all has n·m."""
        producer = self._first_vertex[self.logical.producer_of[self.logical.result_of[edge]]]
        consumer = self._first_vertex[self.logical.consumer_of[edge]]
        return ((producer + partition, consumer + subtask) for partition, subtask in self._wiring[edge].links())

    def _has(self, vertex: int | None) -> str:
        return "" if vertex is None else f": {self.logical.vertices[vertex].name!r} has {self._parallelism[vertex]}"


_NOT_WIRED = Wiring(DistributionPattern.ALL_TO_ALL, 0, 0)
"""Stands for the wiring of an edge whose consumer is not initialised yet."""


def _moved(numbers: range, by: int) -> range:
    return range(numbers.start + by, numbers.stop + by) if by else numbers
