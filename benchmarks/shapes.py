"""Jobs of the shapes that planners are compared with, and journals of runs in which all their regions have finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from airflow_recovery import BLOCKING, job, same_as
from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import ObjectExists, ObjectMissing
from airflow_recovery.job import Job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, PlanRecord, RunIdentity
from airflow_recovery.store.object_store import ObjectInfo, StoredObject

IDENTITY = RunIdentity("wide", "date-2026-01-01T000000Z", "job")
FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})
FILES = 2
"""In each result."""


def chain(levels: int, parallelism: int, *, all_to_all: bool = False) -> Job:
    """``levels`` vertices one after the other, each with so many subtasks. The last one is a sink."""
    made = job("wide", version="1")
    for level in range(levels):
        before = f"v{level - 1}" if level else None
        options: dict[str, Any] = {"version": "1"}
        if parallelism > 1:
            # Vertices with other keys read all of each other's subtasks, those with the same ones their own.
            keys = [f"{level}.{at}" for at in range(parallelism)]
            options["parallelism"] = keys if before is None or all_to_all else same_as(before)
        declare = made.source if before is None else made.sink if level == levels - 1 else made.vertex
        if level < levels - 1:
            options["result"] = BLOCKING
        declare(**options)(_function(f"v{level}", before or "spark"))
    return made


def planned(made: Job) -> JobPlan:
    """The plan of a run of the job."""
    return plan_job(made, "benchmarks.shapes:job", FACTS)


def _function(name: str, argument: str) -> Any:
    """A vertex's function, which nobody calls: its parameter is what it reads."""
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(f"def {name}({argument}): ...", namespace)
    return namespace[name]


class MemoryStore:
    """Objects in a mapping: what a server is filled with."""

    def __init__(self, base_uri: str, bodies: dict[str, bytes]) -> None:
        self.base_uri = base_uri
        self.bodies = bodies
        self._folder = base_uri.partition("://")[2]

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create ``key``."""
        if f"{self._folder}/{key}" in self.bodies:
            raise ObjectExists(key)
        return self.put(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite ``key``."""
        self.bodies[f"{self._folder}/{key}"] = body
        return ObjectInfo(key, len(body), _etag(body))

    def get(self, key: str, max_bytes: int | None = None) -> StoredObject:
        """Read ``key``."""
        body = self.bodies.get(f"{self._folder}/{key}")
        if body is None:
            raise ObjectMissing(key)
        return StoredObject(ObjectInfo(key, len(body), _etag(body)), body)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """All objects below ``prefix``."""
        for path in sorted(self.bodies):
            key = path.removeprefix(f"{self._folder}/")
            if key != path and key.startswith(prefix) and key > start_after:
                yield ObjectInfo(key, len(self.bodies[path]), _etag(self.bodies[path]))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        for key in keys:
            self.bodies.pop(f"{self._folder}/{key}", None)


def _etag(body: bytes) -> str:
    from hashlib import md5

    return md5(body, usedforsecurity=False).hexdigest()


def finished_run(
    plan: PlanRecord, bodies: dict[str, bytes], bucket: str = "s3://bucket", identity: RunIdentity = IDENTITY
) -> None:
    """Put the journal and the results of a run of ``plan``, in which every region has finished once, into ``bodies``.

    With the snapshot that a task leaves while its Spark starts.
    """
    store = MemoryStore(f"{bucket}/journal", bodies)
    journal = Journal(store, identity, writer="w", writes_snapshot=True, snapshot_min_pause_s=0)
    results = MemoryStore(f"{bucket}/journal/_results", bodies)
    journal.put_plan(plan)
    hashed = plan_hash(plan)
    for region in plan.regions:
        pins = tuple(InputRef(producer, 1) for producer in region.inputs)
        ti = f"ti-{region.name}"
        journal.claim(
            Claim(region.name, 1, "w", hashed, pins, "run", 1, ti, "tag", "2026-01-01T00:00:00+00:00", max_tries=3)
        )
        store.put(journal.layout.heartbeat(region.name, 1), b"{}")
        location = f"{journal.layout.data_of_number(region.name, 1)}/{region.results[0]}" if region.results else ""
        outputs: Sequence[PartitionManifest] = ()
        if region.results:
            infos = [results.put(f"{location}/part-{at:05d}.parquet", b"rows") for at in range(FILES)]
            files = tuple(ResultObject(info.key.rpartition("/")[2], info.size, info.etag) for info in infos)
            outputs = (PartitionManifest(region.results[0], f"{results.base_uri}/{location}", files, rows=10),)
        outcome = Outcome(
            region.name, 1, AttemptState.FINISHED, "w", "2026-01-01T00:10:00+00:00", region.fingerprint, pins
        )
        journal.finish(replace(outcome, outputs=tuple(outputs), spark_seconds=60.0, application_id="app", worker="h"))
    journal.renew_snapshot(journal.list(region.name for region in plan.regions))
    journal.wait_for_snapshot()
