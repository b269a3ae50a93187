"""A region as a person names it on the command line."""

from __future__ import annotations

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.model.records import RegionPlan
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.story.run_view import RunView


def region_named(view: RunView, name: str) -> RegionPlan:
    """The region of the plan in use. Raises `UnknownRegion` with the closest name."""
    regions = {region.name: region for region in view.in_use.plan.regions}
    if name not in regions:
        raise UnknownRegion(f"{name!r} is not in this plan{did_you_mean(name, regions)}.")
    return regions[name]
