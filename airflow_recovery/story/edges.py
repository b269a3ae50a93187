"""Who reads what of whom: the edges between regions, by the type of the results that they carry."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.result_type import BLOCKING, BLOCKING_PERSISTENT, RESULT_TYPES, kept_by


@dataclass(frozen=True)
class Edge:
    """Region ``consumer`` reads ``results`` of region ``producer``. Edges inside a region are pipelined, not listed.

    ``type``: the name of the results' `ResultType`.
    """

    producer: str
    consumer: str
    results: tuple[str, ...]
    type: str


def edges_of(plan: PlanRecord, state: RunState) -> list[Edge]:
    """In the order of the consumers. That a keeper has a result is known once an attempt has registered it."""
    types = {region.name: _type(region, state) for region in plan.regions}
    return [
        Edge(producer, region.name, _read(region, plan.by_name[producer]), types[producer])
        for region in plan.regions
        for producer in region.inputs
    ]


def group_edges_of(plan: PlanRecord, state: RunState) -> list[Edge]:
    """As `edges_of`, each once, between regions without the keys of subtasks: there may be millions with them."""
    edges: dict[tuple[str, str], Edge] = {}
    for group in plan.groups:
        consumer = without_key(group.template)
        for edge in group.inputs:
            read = plan.groups_by_name[edge.group]
            producer = without_key(read.template)
            if (producer, consumer) not in edges:
                kind = _type(plan.by_name[read.names[0]], state)
                edges[producer, consumer] = Edge(producer, consumer, _read(group.template, read.template), kind)
    return list(edges.values())


def without_key(region: RegionPlan) -> str:
    """The name of what ``region`` is a subtask of, or its own."""
    return region.subtask.of if region.subtask is not None else region.name


def _read(consumer: RegionPlan, producer: RegionPlan) -> tuple[str, ...]:
    return tuple(result for result in producer.results if result in consumer.reads) or producer.results


def _type(region: RegionPlan, state: RunState) -> str:
    if region.persistent:
        return BLOCKING_PERSISTENT.name
    current = state.of(region.name).current
    outputs = current.outcome.outputs if current is not None and current.outcome is not None else ()
    keeper = next((name for output in outputs if (name := kept_by(output.location))), "")
    kinds = (kind.name for kind in RESULT_TYPES.values() if keeper and kind.kept_by == keeper)
    return next(kinds, BLOCKING.name)
