"""Which subtasks restart when one has failed: Flink's decision, literally, as pure functions (FLIP-1).

`FailoverStrategy.REGION` in three rules, applied until nothing is added:

1. The region of the failed subtask restarts.
2. Where a restarting region reads a partition that is not available, the region that makes it restarts, too.
3. Where a region restarts, every region that reads anything it makes restarts, too: its rows may differ.

A partition is available unless it is the lost one, or its source of truth says no, or it can be read only once.

What is decided here is which subtasks; whether and when they restart is for the restart limits to say. The product
has no such function: each task evaluates its own region, and what then runs together is held equal to this rule
(`tests/attempt/test_flinks_restart_set.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from airflow_recovery.errors import ConfigurationError
from reference.execution_graph import PartitionUnavailable
from reference.execution_topology import ExecutionTopology


def lost_partition(topology: ExecutionTopology, cause: BaseException | None) -> int | None:
    """The partition that the first `PartitionUnavailable` in an exception's chain names, if there is any."""
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, PartitionUnavailable):
            return topology.graph.partition_id(cause.result, cause.subtask)
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def region_restart_set(
    topology: ExecutionTopology,
    failed: int,
    *,
    available: Callable[[int], bool],
    lost: int | None = None,
    is_created: Callable[[int], bool] | None = None,
) -> list[int]:
    """Return the execution vertices to restart, ascending.

    ``available(partition)`` is asked once for every input of every region on the way, not only for the one in the
    failure's cause: one decision sees every loss (FLINK-14439). Inputs that can be read only once are not asked for:
    they always drag their producers in. ``lost`` counts as unavailable in this one decision; nothing is remembered.

    Vertices that were never started (``is_created``) are walked through and not named, so a failure of one of these
    alone restarts nothing. Raises `UnknownVertex`.
    """
    restarting = _closure(topology, failed, available, lost, with_consumers=True)
    vertices = chain.from_iterable(restarting)
    return list(vertices) if is_created is None else [vertex for vertex in vertices if not is_created(vertex)]


def full_restart_set(topology: ExecutionTopology, failed: int) -> list[int]:
    """Return every execution vertex, those that were never started, too. Raises `UnknownVertex` for a foreign one."""
    topology.region_of_vertex(failed)
    return list(range(topology.graph.vertex_count))


def individual_restart_set(
    topology: ExecutionTopology,
    failed: int,
    *,
    available: Callable[[int], bool],
    assumed: Callable[[str], bool],
    lost: int | None = None,
) -> list[int]:
    """Return the failed subtask's region and the producers of what it misses, ascending; no reader of either.

    ``assumed(result)`` says that the result is declared ``deterministic="assume"``: any finish of its producer will do.
    Raises `ConfigurationError` where another region reads a restarting one's result that is not, since that region
    would be left with rows of a superseded attempt; and `UnknownVertex`. ``available`` and ``lost`` as in
    `region_restart_set`.
    """
    restarting = _closure(topology, failed, available, lost, with_consumers=False)
    numbers = list(chain.from_iterable(restarting))
    known = frozenset(numbers)
    graph, logical = topology.graph, topology.logical
    for vertices in restarting:
        for edge, groups in graph.groups_fed_by(vertices):
            result = logical.edges[edge].result
            if not assumed(result) and not known.issuperset(graph.consumers_of(edge, groups)):
                raise ConfigurationError(
                    f"failover strategy 'individual': expected deterministic='assume' on {result!r}, which "
                    f"{logical.edges[edge].consumer!r} reads: declare it, or use the strategy 'region'"
                )
    return numbers


def _closure(  # noqa: C901 - Flink's three rules in one loop
    topology: ExecutionTopology,
    failed: int,
    available: Callable[[int], bool],
    lost: int | None,
    *,
    with_consumers: bool,
) -> list[range]:
    """Rules 1 and 2, and 3 on request: the execution vertices that restart, as ascending ranges.

    The queue holds ranges of subtasks, so that ten thousand neighbours are one step, and every group is looked into
    once, so that an all-to-all edge costs as much as it has ends.
    """
    graph = topology.graph
    graph.job_vertex_of(failed)  # an unknown vertex is a mistake of the caller, not an empty answer
    if lost is not None:
        graph.result_of(lost)  # so is an unknown partition
    restarting = bytearray(graph.vertex_count)
    asked, told = bytearray(graph.group_count), bytearray(graph.group_count)
    found: list[range] = []
    queue: list[range] = []

    def restart(vertices: range) -> None:
        for fresh in _unmarked(restarting, vertices):
            for region in topology.whole_regions(fresh):
                # One region can have a part in several of these ranges.
                for each in _newly_marked(restarting, region):
                    found.append(each)
                    queue.append(each)

    restart(range(failed, failed + 1))
    while queue:
        vertices = queue.pop()
        for edge, groups in graph.groups_read_by(vertices):
            for fresh in _newly_marked(asked, groups):
                partitions = graph.partitions_in(edge, fresh)
                for missing in _unavailable(topology, edge, partitions, available, lost):
                    restart(graph.producers_of(edge, missing))
        if with_consumers:
            for edge, groups in graph.groups_fed_by(vertices):
                for fresh in _newly_marked(told, groups):
                    restart(graph.consumers_of(edge, fresh))
    found.sort(key=_start)
    return found


def _unavailable(
    topology: ExecutionTopology, edge: int, partitions: range, available: Callable[[int], bool], lost: int | None
) -> Sequence[range]:
    """Those of one edge's partitions that are not available, as ranges."""
    if not topology.logical.readable_again[topology.logical.result_of[edge]]:
        return [partitions]
    if len(partitions) == 1:
        return (partitions,) if partitions.start == lost or not available(partitions.start) else ()
    missing = [partition for partition in partitions if partition == lost or not available(partition)]
    ranges: list[range] = []
    for partition in missing:
        if ranges and ranges[-1].stop == partition:
            ranges[-1] = range(ranges[-1].start, partition + 1)
        else:
            ranges.append(range(partition, partition + 1))
    return ranges


def _start(numbers: range) -> int:
    return numbers.start


def _newly_marked(marks: bytearray, numbers: range) -> Sequence[range]:
    """Mark ``numbers``, and return the parts of it that were not marked before."""
    if len(numbers) == 1:
        if marks[numbers.start]:
            return ()
        marks[numbers.start] = 1
        return (numbers,)
    found = _unmarked(marks, numbers)
    marks[numbers.start : numbers.stop] = b"\1" * len(numbers)
    return found


def _unmarked(marks: bytearray, numbers: range) -> Sequence[range]:
    """The parts of ``numbers`` that are not marked."""
    if len(numbers) == 1:
        return () if marks[numbers.start] else (numbers,)
    found = []
    start = marks.find(0, numbers.start, numbers.stop)
    while start >= 0:
        stop = marks.find(1, start, numbers.stop)
        if stop < 0:
            stop = numbers.stop
        found.append(range(start, stop))
        start = marks.find(0, stop, numbers.stop)
    return found
