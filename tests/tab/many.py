"""A journal with very many regions, written without their protocol."""

from __future__ import annotations

from fakes import MemoryStore
from rest_world import RestWorld

from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, FenceCause, Outcome, PlanRecord
from airflow_recovery.model.region_plan import RegionPlan

FAILED = "r12_07"


def many_regions(rest: RestWorld, *, layers: int, wide: int) -> None:
    """``layers`` layers of ``wide`` regions, of which each reads two of the layer before. One has failed."""
    regions = []
    for layer in range(layers):
        for at in range(wide):
            inputs = tuple(f"r{layer - 1:02}_{(at + step) % wide:02}" for step in (0, 1)) if layer else ()
            name = f"r{layer:02}_{at:02}"
            regions.append(RegionPlan(name, (f"read {at}", f"join {at}"), (name,), inputs, layer == layers - 1, "code"))
    plan = PlanRecord("jobs:large", tuple(regions))
    rest.world.journal_store = rest.stores.journal = MemoryStore("memory://journal")
    journal = rest.world.journal()
    journal.put_plan(plan)
    named = plan_hash(plan)

    def finish(region: RegionPlan) -> None:
        pins = tuple(InputRef(producer, 1) for producer in region.inputs)
        journal.claim(Claim(region.name, 1, "test", named, pins, "run", 1, "ti", "tag", "2026-01-01T00:00:00+00:00"))
        if region.name == FAILED:
            journal.fence(
                Outcome(
                    region.name, 1, AttemptState.FENCED, "test", "2026-01-01T00:01:00+00:00",
                    cause=FenceCause.OWN_FAILURE, detail="no such column: delay",
                )
            )  # fmt: skip
            return
        made = PartitionManifest(region.name, f"file:///{region.name}", (ResultObject("part-0", 10, "etag"),), 3)
        journal.finish(
            Outcome(
                region.name, 1, AttemptState.FINISHED, "test", "2026-01-01T00:01:00+00:00",
                fingerprint="code", inputs=pins, outputs=(made,), spark_seconds=60.0,
            )
        )  # fmt: skip

    for each in regions:
        if int(each.name[1:3]) <= int(FAILED[1:3]):
            finish(each)
