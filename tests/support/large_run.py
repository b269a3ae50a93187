"""A run whose first vertex has finished but for one subtask, in a journal that was written without its protocol.

source[0..9] ---> total (one region) ---> spread[0..4]
"""

from __future__ import annotations

from collections.abc import Sequence

from rest_world import RestWorld

from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.groups import DistributionPattern, GroupEdge, GroupedRegions, RegionGroup
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan

AT = "2026-01-01T00:00:00+00:00"
FAILED = "source[3]"


def group(name: str, size: int, *producers: str) -> RegionGroup:
    template = RegionPlan(name, (name,), (name,), (), False, None, reads=producers)
    edges = tuple(GroupEdge(producer, DistributionPattern.ALL_TO_ALL) for producer in producers)
    return RegionGroup(template, edges, tuple(map(str, range(size))))


PLAN = PlanRecord(
    "jobs:large",
    GroupedRegions(
        (
            group("source", 10),
            RegionGroup(
                RegionPlan("total", ("total",), ("total",), (), False, "code", reads=("source",)),
                (GroupEdge("source", DistributionPattern.ALL_TO_ALL),),
            ),
            group("spread", 5, "total"),
        )
    ),
)


def finished(rest: RestWorld, regions: Sequence[RegionPlan]) -> None:
    """Every one of ``regions`` has finished once, but for one that has failed."""
    journal = rest.world.journal()
    journal.put_plan(PLAN)
    for region in regions:
        name, pins = region.name, tuple(InputRef(producer, 1) for producer in region.inputs)
        journal.claim(Claim(name, 1, "test", plan_hash(PLAN), pins, "run", 1, "ti", "tag", AT))
        if name == FAILED:
            cause, detail = FenceCause.OWN_FAILURE, "no such column"
            journal.fence(Outcome(name, 1, AttemptState.FENCED, "test", AT, cause=cause, detail=detail))
        else:
            location = f"{rest.stores.results.base_uri}/{journal.layout.data_of_number(name, 1)}/{region.results[0]}"
            made = PartitionManifest(region.results[0], location, (ResultObject("part-0", 10, "etag"),), 3)
            ended = Outcome(name, 1, AttemptState.FINISHED, "test", AT, region.fingerprint, pins, outputs=(made,))
            journal.finish(ended)
