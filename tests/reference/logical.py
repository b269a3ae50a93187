"""The logical topology, with what Flink's algorithms ask besides: subtasks, and which of them reads which.

The product's regions (`airflow_recovery.planning.logical`) need none of it: a region is one Airflow task, and it reads
whole results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.result_type import ResultType
from airflow_recovery.planning import logical
from airflow_recovery.planning.logical import LogicalResult, co_located_with, grouped

__all__ = ["DistributionPattern", "LogicalEdge", "LogicalResult", "LogicalTopology", "LogicalVertex"]

RE_CONSUMABLE = frozenset(
    {
        ResultType.BLOCKING,
        ResultType.BLOCKING_PERSISTENT,
        ResultType.HYBRID_FULL,
        ResultType.CACHED,
        ResultType.CACHED_MEMORY_ONLY,
    }
)
"""A later attempt of a consumer can read the very same rows of an earlier attempt of the producer."""

RELEASED_BY_PRODUCER = frozenset({ResultType.PIPELINED, ResultType.PIPELINED_BOUNDED, ResultType.PIPELINED_APPROXIMATE})
"""Of these the producer deletes the data (Flink's ``ReleaseBy.UPSTREAM``), of all others the scheduler."""


class DistributionPattern(str, Enum):
    """Which subtasks of the consumer read which subtasks of the producer."""

    ALL_TO_ALL = "ALL_TO_ALL"
    """Each reads all."""

    POINTWISE = "POINTWISE"
    """Each reads its share: subtask i reads subtask i where both have as many."""


@dataclass(frozen=True, slots=True)
class LogicalVertex(logical.LogicalVertex):
    """``parallelism`` `None`: decided at run time.

    Of a co-location group, subtask i of every vertex is in the same region. They need the same parallelism.
    """

    parallelism: int | None = 1


@dataclass(frozen=True, slots=True)
class LogicalEdge(logical.LogicalEdge):
    """Which subtasks read which is said by ``pattern``."""

    pattern: DistributionPattern = DistributionPattern.ALL_TO_ALL


class LogicalTopology(logical.LogicalTopology):
    """What is known of 100,000 subtasks is a list and not an object each, so every answer here is a list by number."""

    vertices: tuple[LogicalVertex, ...]
    edges: tuple[LogicalEdge, ...]

    def __init__(
        self, vertices: Iterable[LogicalVertex], results: Iterable[LogicalResult], edges: Iterable[LogicalEdge]
    ) -> None:
        super().__init__(vertices, results, edges)
        self.vertex_number = {vertex.name: number for number, vertex in enumerate(self.vertices)}
        self.result_number = {result.name: number for number, result in enumerate(self.results)}
        self.results_of = grouped(self.producer_of, len(self.vertices))
        """The results of every vertex."""
        self.must_run_together = [result.type.must_run_together for result in self.results]
        """Of every result."""
        self.readable_again = [readable_again(result.type) for result in self.results]
        """Of every result."""
        self.released_by_us = [
            result.type not in RELEASED_BY_PRODUCER and not result.type.persistent for result in self.results
        ]
        """Of every result: it goes when its last reader is done."""
        self.co_located_with = co_located_with(self.vertices)
        """For every vertex of a co-location group but its first one: that first one."""


def readable_again(result: ResultType) -> bool:
    """Whether a consumer that restarts can connect again while the producer goes on.

    Re-consumable, or approximate: the exception that FLIP-135 makes, where rows may be missing.
    """
    return result in RE_CONSUMABLE or result is ResultType.PIPELINED_APPROXIMATE
