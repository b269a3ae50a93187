"""One process measures one step of one case, as ``FlinkBench`` does for Flink: ``CASE LEVELS PARALLELISM STEP``.

``python -m reference.flink_scale_case all_to_all_blocking 2 10000 regions`` prints one JSON line. ``cold_ms`` is the
first call in this process, until every region's id, or every id to restart, is there; ``memory_mb`` the growth of peak
RSS from before the job was declared until the step was done.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import TypeVar

_BEGUN = time.perf_counter()

from airflow_recovery.model.result_type import ResultType  # noqa: E402
from reference.execution_topology import ExecutionTopology  # noqa: E402
from reference.logical import (  # noqa: E402
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)
from reference.restart_set import region_restart_set  # noqa: E402

T = TypeVar("T")
IMPORT_MS = 1000 * (time.perf_counter() - _BEGUN)


class TimedTopology(ExecutionTopology):
    """Knows how much of its making was the building of regions, as Flink logs it."""

    regions_ms = 0.0

    def _add_regions(self, logical_regions: Iterable[int]) -> range:
        begun = time.perf_counter()
        found = super()._add_regions(logical_regions)
        self.regions_ms += 1000 * (time.perf_counter() - begun)
        return found


class Case:
    """A chain of ``levels`` job vertices with ``parallelism`` subtasks each."""

    def __init__(self, name: str, levels: int, parallelism: int) -> None:
        self.levels = levels
        pattern = DistributionPattern(name.rpartition("_")[0].upper())
        kind = ResultType.BLOCKING if name.endswith("blocking") else ResultType.PIPELINED_BOUNDED
        self.vertices = [LogicalVertex(f"v{i}", parallelism) for i in range(levels)]
        self.results = [LogicalResult(f"v{i}", f"v{i}", kind) for i in range(levels - 1)]
        self.edges = [LogicalEdge(f"v{i - 1}", f"v{i}", pattern) for i in range(1, levels)]

    def logical(self) -> LogicalTopology:
        return LogicalTopology(self.vertices, self.results, self.edges)


def graph_step(case: Case, calls: int) -> tuple[list[float], int]:
    """From the declared job to everything: subtasks, partitions, groups, regions."""
    times: list[float] = []
    for _ in range(calls):
        topology = _timed(times, lambda: ExecutionTopology(case.logical()))
    return times, len(topology.region_of)


def topology_step(case: Case, calls: int) -> tuple[list[float], int]:
    """The expansion and the regions, from a job that is numbered and checked already."""
    logical = case.logical()
    times: list[float] = []
    for _ in range(calls):
        topology = _timed(times, lambda: ExecutionTopology(logical))
    return times, len(topology.region_of)


def regions_step(case: Case, calls: int) -> tuple[list[float], int]:
    """The regions alone."""
    logical = case.logical()
    built = [TimedTopology(logical) for _ in range(calls)]
    return [topology.regions_ms for topology in built], built[0].region_count


def restart_step(case: Case, calls: int, step: str) -> tuple[list[float], int]:
    """The restart set after subtask 0 of the first, the middle or the last job vertex has failed."""
    topology = ExecutionTopology(case.logical())
    graph = topology.graph
    there = set() if step.endswith("all_lost") else set(range(graph.partition_count))
    level = {"source": 0, "mid": case.levels // 2, "sink": case.levels - 1}[step.partition("_")[0]]
    lost = graph.partition_id(f"v{level - 1}") if step.endswith("one_lost") else None
    failed = graph.vertex_id(f"v{level}")
    times: list[float] = []
    for _ in range(calls):
        found = _timed(times, lambda: region_restart_set(topology, failed, available=there.__contains__, lost=lost))
    return times, len(found)


STEPS: dict[str, Callable[[Case, int], tuple[list[float], int]]] = {
    "graph": graph_step,
    "topology": topology_step,
    "regions": regions_step,
}


def measure(case: Case, step: str, calls: int) -> tuple[list[float], int]:
    """The times of each call in ms, and what was counted: vertices, regions, or tasks to restart."""
    return STEPS[step](case, calls) if step in STEPS else restart_step(case, calls, step)


def main(arguments: list[str]) -> int:
    name, levels, parallelism, step = arguments[0], int(arguments[1]), int(arguments[2]), arguments[3]
    calls = 1 + int(os.environ.get("WARM", "5"))
    before = _peak_mb()
    case = Case(name, levels, parallelism)
    # Memory is that of a single call: later ones may hold two graphs at a time.
    times, result = measure(case, step, 1)
    memory = _peak_mb() - before
    warm, _ = measure(case, step, calls - 1) if calls > 1 else (times, result)
    print(
        json.dumps(
            {
                "ours": True, "case": name, "levels": levels, "parallelism": parallelism, "step": step,
                "cold_ms": round(times[0], 3), "warm_ms": round(median(warm), 3), "memory_mb": round(memory, 1),
                "import_ms": round(IMPORT_MS, 1), "result": result,
            }
        ),
        flush=True,
    )  # fmt: skip
    return 0


def _timed(times: list[float], act: Callable[[], T]) -> T:
    begun = time.perf_counter()
    found = act()
    times.append(1000 * (time.perf_counter() - begun))
    return found


def _peak_mb() -> float:
    # Not ru_maxrss, which a process inherits from the one that started it.
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
