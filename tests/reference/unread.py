"""Which regions of a run's plan nobody reads any more, by Flink's release rule: the measure of `ReadersLeft`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.result_type import BLOCKING, BLOCKING_PERSISTENT
from reference.execution_topology import ExecutionTopology
from reference.logical import (
    DistributionPattern,
    LogicalEdge,
    LogicalResult,
    LogicalTopology,
    LogicalVertex,
)
from reference.partition_group_release import PartitionGroupRelease

_Place = tuple[str, int]
"""A job vertex, and which of its subtasks."""


def unread_regions(plan: PlanRecord, is_done: Callable[[str], bool]) -> frozenset[str]:
    """The regions that are read by others, all of which ``is_done``; none that holds a final result."""
    places = {region.name: _place(region) for region in plan.regions}
    names = {place: name for name, place in places.items()}
    topology = ExecutionTopology(_logical(plan, places))
    graph = topology.graph
    rule = PartitionGroupRelease(topology)
    done = [graph.vertex_id(*place) for name, place in places.items() if is_done(name)]
    groups = dict.fromkeys(group for vertex in done for group in rule.vertex_finished(vertex))
    partitions = map(graph.partition_name, rule.releasable_partitions(groups))
    return frozenset(names[partition.result, partition.subtask] for partition in partitions)


def _place(region: RegionPlan) -> _Place:
    return (region.name, 0) if region.subtask is None else (region.subtask.of, region.subtask.index)


def _logical(plan: PlanRecord, places: dict[str, _Place]) -> LogicalTopology:
    """The data of a region goes as a whole: so each is one job vertex with one result here, of its own name."""
    parallelism = Counter(vertex for vertex, _ in places.values())
    # Of each edge, whether it can be pointwise: subtask i reads subtask i, and nothing else.
    pointwise: dict[tuple[str, str], bool] = {}
    for region in plan.regions:
        consumer, subtask = places[region.name]
        read: defaultdict[str, list[int]] = defaultdict(list)
        for name in region.inputs:
            producer, number = places[name]
            read[producer].append(number)
        for producer, numbers in read.items():
            is_alike = numbers == [subtask] and parallelism[producer] == parallelism[consumer]
            pointwise[producer, consumer] = is_alike and pointwise.get((producer, consumer), True)
    # A final result is kept until somebody asks, as one that outlives its run is in Flink.
    types = {places[region.name][0]: BLOCKING_PERSISTENT if region.final else BLOCKING for region in plan.regions}
    return LogicalTopology(
        [LogicalVertex(name, count) for name, count in parallelism.items()],
        [LogicalResult(name, name, kind) for name, kind in types.items()],
        [
            # All to all where it is neither: then data stays longer than it must, and never goes too early.
            LogicalEdge(producer, consumer, DistributionPattern.POINTWISE if alike else DistributionPattern.ALL_TO_ALL)
            for (producer, consumer), alike in pointwise.items()
        ],
    )
