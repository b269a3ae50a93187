"""The processes of `test_outliving_drivers`: ``task FOLDER`` claims P and submits, ``driver SPEC GO`` is its driver.

The driver writes, and finishes, when the file GO is there. With a file `BLIND` beside that, it does not look whether
its attempt was fenced.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.driver import outcome
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt, heartbeat, open_early
from airflow_recovery.driver.region_spec import RegionSpec, RunDates, VertexSpec
from airflow_recovery.errors import AttemptLost, RegionFailed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import ExternalObject, Outcome, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing.fake_airflow import FakeAirflow

IDENTITY = RunIdentity("dag", "2026-01-01", "group")
PLAN = PlanRecord("jobs:one", (RegionPlan("P", ("P",), ("P",), (), True, "code 1"),))
HEARTBEAT_S = 0.1
REJECTED = 3
BLIND = "blind"
log = logging.getLogger("tests.outliving")


@dataclass
class Submitted(SparkApplication):
    """Its driver is a process of its own session, as in deploy mode cluster. ``pids``: of those that it started."""

    folder: Path
    writer: str
    pids: list[int] = field(default_factory=list)

    def externals(self) -> tuple[ExternalObject, ...]:
        return ()

    def stop(self) -> None: ...

    @property
    def outlives_task(self) -> bool:
        return True

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        n = attempt.claim.attempt
        results = StoreSpec(f"file://{self.folder}/results")
        spec = RegionSpec(
            job="jobs:one",
            identity=IDENTITY,
            trace=attempt.trace,
            tag=attempt.claim.tag,
            vertices=(VertexSpec("P", {}, True, False),),
            inputs=(),
            run=RunDates(None, None, None),
            location=f"{results.uri}/{JournalLayout(IDENTITY).data_of(attempt.claim)}",
            journal=StoreSpec(f"file://{self.folder}/journal"),
            results=results,
            heartbeat_s=HEARTBEAT_S,
        )
        path = self.folder / f"{n}.json"
        path.write_text(spec.to_json())
        command = [sys.executable, __file__, "driver", str(path), str(self.folder / f"go-{n}")]
        driver = subprocess.Popen(command, start_new_session=True)
        self.pids.append(driver.pid)
        (self.folder / f"{n}.pid").write_text(str(driver.pid))
        if driver.wait() != 0:
            raise RegionFailed(f"the driver of P@{n} ended with {driver.returncode}")
        return None


def task_of(
    own: TaskTry,
    airflow: FakeAirflow,
    application: Submitted,
    heartbeat_timeouts: HeartbeatTimeouts,
    plan: PlanRecord = PLAN,
) -> RegionTask:
    """One try of the plan's only region, in the folder of ``application``."""
    results = LocalStore(f"file://{application.folder}/results")
    region = plan.regions[0].name
    run = Run(
        plan=plan,
        journal=Journal(LocalStore(f"file://{application.folder}/journal"), IDENTITY, writer=application.writer),
        task_instances=airflow.clear_client(own),
        available=ResultProber(lambda location: results),
        task_keys={region: region},
        task=TaskIdentity("run", own.try_number, own.ti_id, airflow.grant(region)),
        now=lambda: "now",
        log=log,
        heartbeat_timeouts=heartbeat_timeouts,
    )
    return RegionTask(run, region, application)


def drive(spec: RegionSpec, go: Path) -> int:
    """The driver: as `airflow_recovery.driver.driver`, without Spark."""
    journal = open_early(spec)
    is_stopped = threading.Event()
    look = outcome.is_fenced
    outcome.is_fenced = lambda *given: not (go.parent / BLIND).exists() and look(*given)
    try:
        with heartbeat(spec, journal, log, stop=is_stopped.set):
            part = Path(spec.location.removeprefix("file://")) / "P" / "part-0"
            part.parent.mkdir(parents=True)
            part.write_bytes(b"rows")
            while not go.exists():
                if is_stopped.is_set():
                    raise RuntimeError("Job 0 cancelled because SparkContext was shut down")
                time.sleep(0.02)
            etag = LocalStore(f"{spec.location}/P").get("part-0").info.etag
            made = PartitionManifest("P", f"{spec.location}/P", (ResultObject("part-0", 4, etag),), 1)
            finish_attempt(spec, AttemptResult((made,), 3600.0, "app-1"), log, store=journal())
    except AttemptLost:
        return REJECTED
    return 0


if __name__ == "__main__":
    role, given, *more = sys.argv[1:]
    if role == "driver":
        sys.exit(drive(RegionSpec.from_json(Path(given).read_text()), Path(more[0])))
    airflow = FakeAirflow({"P": ()})
    task_of(airflow.start("P"), airflow, Submitted(Path(given), "writer-1"), HeartbeatTimeouts()).execute()
