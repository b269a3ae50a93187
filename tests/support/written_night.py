"""A run's journal, written record by record: how long each attempt took is as a test says."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_recovery.errors import Failure
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    ExternalObject,
    FenceCause,
    Outcome,
    PlanRecord,
    RunIdentity,
)
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.store import ObjectStore, open_store

MB = 10**6
BEGIN = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
START_S = 20
"""From a claim to its Spark time."""
FAILED_S = 50
"""From the claim of an attempt that fails to its end."""


def region(
    *vertices: str, reads: tuple[str, ...] = (), inputs: tuple[str, ...] = (), final: bool = False
) -> RegionPlan:
    return RegionPlan(vertices[-1], vertices, (vertices[-1],), inputs or reads, final, "code", reads=reads)


class Night:
    """One run's journal. Every attempt begins at `BEGIN`, or ``at_s`` seconds later."""

    def __init__(
        self,
        store: str | ObjectStore,
        key: str,
        regions: tuple[RegionPlan, ...],
        *,
        job: str = "jobs:j",
        group: str = "g",
        dag: str = "d",
    ):
        self.plan = PlanRecord(job, regions)
        opened = open_store(store) if isinstance(store, str) else store
        self.journal = Journal(opened, RunIdentity(dag, key, group), writer="w")
        self.journal.put_plan(self.plan)
        self._attempts: dict[str, int] = {}

    def _claim(self, name: str, at_s: float) -> int:
        number = self._attempts[name] = self._attempts.get(name, 0) + 1
        hash_ = plan_hash(self.plan)
        self.journal.claim(Claim(name, number, "w", hash_, (), "run", number, "ti", "tag", _at(at_s)))
        return number

    def finishes(self, name: str, seconds: float | None, size: int = MB, at_s: float = 0, objects: int = 0) -> None:
        """``objects``: how many it has read from outside."""
        number = self._claim(name, at_s)
        self.journal.finish(
            Outcome(
                name,
                number,
                AttemptState.FINISHED,
                "w",
                _at(at_s + (seconds or 0) + START_S),
                "code",
                externals=tuple(ExternalObject(name, f"s3://in/{at}", 1, "e") for at in range(objects)),
                outputs=(PartitionManifest(name, "file:///r", (ResultObject("part-0", size, "e"),), rows=1),),
                spark_seconds=seconds,
            )
        )

    def fails(
        self,
        name: str,
        vertex: str | None,
        kind: str = "executor lost",
        at_s: float = 0,
        cause: FenceCause = FenceCause.OWN_FAILURE,
    ) -> None:
        failure = Failure("E", "m", vertex=vertex, labels=(("class", kind),))
        number = self._claim(name, at_s)
        ended = _at(at_s + FAILED_S)
        self.journal.fence(Outcome(name, number, AttemptState.FENCED, "w", ended, cause=cause, failure=failure))


def _at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()
