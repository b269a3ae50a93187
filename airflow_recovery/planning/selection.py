"""Regions of a recorded plan by what a person calls them: a region, a vertex, a result."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.edges import Edges
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.planning.mode import planning_of


def regions_named(topology: PlanRecord, name: str) -> list[str]:
    """The regions that ``name`` stands for: a region, all its subtasks, or what holds a vertex of that name.

    Raises `UnknownRegion` with the closest name.
    """
    if name in topology.position:
        return [name]
    regions = [region.name for region in topology.regions if region.subtask is not None and region.subtask.of == name]
    regions = regions or [region.name for region in topology.regions if name in region.vertices]
    if regions:
        return regions
    known = {*topology.position, *(vertex for region in topology.regions for vertex in region.vertices)}
    raise UnknownRegion(
        f"{name!r} is no region and no vertex of {topology.job}{did_you_mean(name, known)}; its regions are "
        f"{_some(topology.position)}.",
        code="region-unknown",
        found=name,
    )


def results_named(topology: PlanRecord, result: str) -> tuple[str, tuple[str, ...]]:
    """(region, results): one result, named by itself or by ``<region>.<result>``; named by its region, all of it.

    Raises `UnknownRegion` with the closest name.
    """
    by_name: dict[str, tuple[str, tuple[str, ...]]] = {}
    for region in topology.regions:
        by_name.setdefault(region.name, (region.name, _made(region)))
        for name in _made(region):
            by_name[f"{region.name}.{name}"] = region.name, (name,)
    for planned in topology.regions:
        for name in _made(planned):
            by_name.setdefault(name, (planned.name, (name,)))
    if result not in by_name:
        raise UnknownRegion(
            f"{result!r} is no result of {topology.job}{did_you_mean(result, by_name)}; its results are "
            f"{_some(name for region in topology.regions for name in _made(region))}.",
            code="result-unknown",
            found=result,
        )
    return by_name[result]


def flowing_result(topology: PlanRecord, result: str) -> str | None:
    """The result, named by itself or by ``<region>.<result>``, that is read while it is made; `None` for another."""
    flowing = [(region.name, name) for region in topology.regions for name in planning_of(region).results(region)]
    return next((name for region, name in flowing if result in (name, f"{region}.{name}")), None)


def downstream(topology: PlanRecord, regions: Iterable[str]) -> list[str]:
    """``regions`` and everything that reads them, over however many steps, in topological order.

    Also while it is made: what restarts from a region on restarts whatever its records come to.
    """
    edges = Edges(topology)
    reached = set(regions)
    nodes = {node for name in reached for node in (name, edges.group(name).name)}
    for region in topology.regions:
        if not nodes.isdisjoint((*edges.inputs(region.name), *planning_of(region).producers(region))):
            reached.add(region.name)
            nodes |= {region.name, edges.group(region.name).name}
    return [name for name in topology.position if name in reached]


def _made(region: RegionPlan) -> tuple[str, ...]:
    return (*region.results, *planning_of(region).results(region))


def _some(names: Iterable[str], most: int = 12) -> str:
    """The first of ``names``, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
