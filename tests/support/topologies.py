"""Small logical topologies, drawn in one line: what the tests of topology and failover speak about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reference.logical import (
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)

from airflow_recovery.model.result_type import ResultType

ALL_TO_ALL, POINTWISE = DistributionPattern.ALL_TO_ALL, DistributionPattern.POINTWISE


def chain(
    *parallelism: int | None, kind: ResultType, pattern: DistributionPattern = DistributionPattern.POINTWISE
) -> LogicalTopology:
    """v0, v1, ... each reading the one before; the results have their vertices' names."""
    return LogicalTopology(
        [LogicalVertex(f"v{i}", each) for i, each in enumerate(parallelism)],
        [LogicalResult(f"v{i}", f"v{i}", kind) for i in range(len(parallelism))],
        [LogicalEdge(f"v{i - 1}", f"v{i}", pattern) for i in range(1, len(parallelism))],
    )


def single_subtasks(edges: Mapping[str, ResultType], more: Iterable[str] = ()) -> LogicalTopology:
    """``edges`` are ``"v1 v3"`` with the type of v1's result to v3: a result of that name. ``more``: lone vertices."""
    names = dict.fromkeys([*(name for edge in edges for name in edge.split()), *more])
    return LogicalTopology(
        [LogicalVertex(name) for name in sorted(names)],
        [LogicalResult(edge, edge.split()[0], kind) for edge, kind in edges.items()],
        [LogicalEdge(edge, edge.split()[1]) for edge in edges],
    )
