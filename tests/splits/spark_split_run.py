"""A run of the job in `code/regionjobs/splitwise.py`: the real protocol and real Spark, without Airflow."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from paths import CODE

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.driver.exit_report import read_failure, reporting_failure
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.region_spec import ModeSpec, RegionSpec, RunDates, VertexSpec
from airflow_recovery.driver.submit import submit_environment
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import RegionFailed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import AttemptState, Claim, ExternalObject, Outcome, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.splits.loop import SplitLoop
from airflow_recovery.splits.mode import SplitClaim, SplitPlan
from airflow_recovery.splits.spec import SplitSpec
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.region_program import region_failed  # here: Airflow sets up logging when it is imported
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.patience import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = "regionjobs.splitwise:splitwise"
REGION = "large-parsed"
SIDE = "pinned"
LOG = logging.getLogger("tests.spark_split_run")
DEADLINE_S = 300.0
"""A JVM on a busy machine takes its time."""
Drive = Callable[[RegionSpec], None]
"""Runs one attempt to its outcome; raises what the task shall fail with."""


class SparkSplitRun:
    """``journal`` is where it is for drivers, ``open_journal`` how this process reaches it (default: ``folder``)."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        *,
        journal: StoreSpec | None = None,
        open_journal: Callable[[], ObjectStore] | None = None,
        batch_bytes: int = 12,
        loss_budget: int = 0,
        params: dict[str, object] | None = None,
        counts: bool = False,
    ) -> None:
        self.folder = folder
        self.spark = spark
        self.identity = RunIdentity("dag", "2026-01-01", uuid.uuid4().hex)
        self.journal_spec = journal or StoreSpec(f"file://{folder}/journal")
        self._open_journal = open_journal or (lambda: LocalStore(f"file://{folder}/journal"))
        self.results = StoreSpec(f"file://{folder}/results")
        self.batch_bytes = batch_bytes
        self.loss_budget = loss_budget
        self.params = params or {}
        self.counts = counts
        self.fingerprint = "code 1"
        self.airflow = FakeAirflow({SIDE: (), REGION: (SIDE,)}, retries=9)
        self.specs: list[RegionSpec] = []
        self._writers = 0
        (folder / "in").mkdir(parents=True)
        self.make_side()

    # the world outside

    def write_files(self, count: int, *, first: int = 0) -> None:
        """One number a file, six bytes each."""
        for number in range(first, first + count):
            self.write_file(f"{number:05d}", number)

    def write_file(self, name: str, number: int) -> None:
        (self.folder / "in" / f"{name}.csv").write_text(f"{number:05d}\n")

    def externals(self) -> tuple[ExternalObject, ...]:
        store = LocalStore(f"file://{self.folder}/in")
        return tuple(
            ExternalObject("lines", f"file://{self.folder}/in/{each.key}", each.size, each.etag)
            for each in store.list()
        )

    # the journal

    @property
    def plan(self) -> PlanRecord:
        side = RegionPlan(SIDE, (SIDE,), (SIDE,), (), False, "code of the side input")
        vertices = ("lines", "parsed", "large")
        own = RegionPlan(
            REGION,
            vertices,
            ("parsed", "large"),
            (SIDE,),
            True,
            self.fingerprint,
            reads=(SIDE,),
            mode=SplitPlan(split_source="lines"),
        )
        return PlanRecord(JOB, (side, own))

    def journal(self, writer: str = "test") -> Journal:
        return Journal(self._open_journal(), self.identity, writer=writer)

    def state(self) -> RunState:
        journal = self.journal()
        return journal.load(journal.list([SIDE, REGION]))

    def outcome(self, attempt: int) -> Outcome:
        found = self.journal().read_outcome(REGION, attempt)
        assert found is not None
        return found

    def batches(self, attempt: int) -> int:
        """How long its log is."""
        found = self.state().of(REGION).attempts.get(attempt)
        return found.batches if found is not None else 0

    def make_side(self, even: str = "even") -> None:
        """The side input is made (again), by a next attempt of its region."""
        journal = self.journal("writer-side")
        number = self.state().of(SIDE).latest_attempt + 1
        location = f"{self.results.uri}/{JournalLayout(self.identity).data_of_number(SIDE, number)}/{SIDE}"
        frame = self.spark.createDataFrame([(0, even), (1, "odd")], "parity long, name string")
        made = write_result(
            self.spark, frame, result=SIDE, location=location, store=LocalStore(self.results.uri), is_digested=True
        )
        journal.put_plan(self.plan)
        journal.claim(
            Claim(SIDE, number, journal.writer, plan_hash(self.plan), (), "run", 1, f"ti-{number}", "tag", "now")
        )
        journal.finish(
            Outcome(
                SIDE, number, AttemptState.FINISHED, journal.writer, "now", "code of the side input", outputs=(made,)
            )
        )
        if self.airflow.state(SIDE) != "success":
            self.airflow.mark(SIDE, "success")

    # tries of the region's task

    def go(self, drive: Drive | None = None) -> RegionResult:
        """One try. Airflow is told how it ended; what it failed with is raised."""
        own = self.airflow.start(REGION)
        self._writers += 1
        run = Run(
            plan=self.plan,
            journal=self.journal(f"writer-{self._writers}"),
            task_instances=self.airflow.clear_client(own),
            available=ResultProber(lambda location: LocalStore(self.results.uri)),
            task_keys={REGION: REGION, SIDE: SIDE},
            task=TaskIdentity("run", own.try_number, own.ti_id, self.airflow.grant(REGION)),
            now=lambda: "now",
            log=LOG,
        )
        try:
            result = RegionTask(run, REGION, _Application(self, drive or self.in_process)).execute()
        except BaseException:
            self.airflow.end(own, "failed")
            raise
        self.airflow.end(own, "success")
        return result

    def fail_after(self, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """One try, which fails by nobody's fault when it has committed so many batches."""
        commit, one_at_a_time = SplitLoop._commit, threading.Lock()

        def at_last(loop: SplitLoop, *given: Any, **named: Any) -> None:
            with one_at_a_time:
                if len(loop._own) == batches:
                    raise ConnectionError("Connection reset")
                commit(loop, *given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(SplitLoop, "_commit", at_last)
            with pytest.raises(RegionFailed, match="Connection reset"):
                self.go()

    def again(self) -> RegionResult:
        """A user clears the task, and it runs."""
        self.airflow.clear(REGION)
        return self.go()

    def in_process(self, spec: RegionSpec) -> None:
        """On the tests' own session, as `airflow_recovery.driver.driver` does it on one of its own."""
        progress = Progress(LOG, spec.attempt)
        store = self._open_journal()
        with reporting_failure(spec, progress, LOG):
            result = run_region(self.spark, spec, log=LOG, progress=progress, journal=lambda: store)
            finish_attempt(spec, result, LOG, store=store)

    def spec(self, attempt: ClaimedAttempt) -> RegionSpec:
        """As the region task makes it."""
        claim = attempt.claim
        (self.folder / "receipts").mkdir(exist_ok=True)
        made = RegionSpec(
            job=JOB,
            identity=self.identity,
            trace=attempt.trace,
            tag=claim.tag,
            vertices=(
                VertexSpec("lines", {"wait_for": "", "ready": "", "after": 0, **self.params}, False, False),
                VertexSpec("parsed", {"counts": self.counts}, True, False, is_digested=True),
                VertexSpec("large", {}, True, False),
            ),
            inputs=tuple(output for outcome in attempt.inputs.values() for output in outcome.outputs),
            run=RunDates(None, None, None),
            location=f"{self.results.uri}/{JournalLayout(self.identity).data_of(claim)}",
            journal=self.journal_spec,
            results=self.results,
            receipt=str(self.folder / "receipts" / str(claim.attempt)),
            heartbeat_s=600.0,
            mode=SplitSpec("lines", self.batch_bytes, SplitClaim.of(claim).base, self.loss_budget),
        )
        self.specs.append(made)
        return made

    # what came of it

    def at_once(self) -> tuple[PartitionManifest, ...]:
        """The results of one big job over today's files."""
        spec = replace(self.specs[-1], mode=ModeSpec(), location=f"{self.results.uri}/at-once/{uuid.uuid4().hex}")
        spec = replace(spec, trace=replace(spec.trace, externals=self.externals()))
        return run_region(self.spark, spec, log=LOG, progress=Progress(LOG, 1)).outputs

    def numbers(self, outcome: Outcome, result: str = "parsed") -> list[int]:
        (manifest,) = (output for output in outcome.outputs if output.result == result)
        return sorted(each.id for each in read_manifest(self.spark, manifest).select("id").collect())

    def data(self, attempt: int) -> list[str]:
        """What lies below the attempt's prefix, but for what Spark and Hadoop hide."""
        prefix = JournalLayout(self.identity).data_of_number(REGION, attempt)
        found = (each.key for each in LocalStore(self.results.uri).list(prefix))
        return [key for key in found if not key.rpartition("/")[2].startswith((".", "_"))]


@dataclass
class _Application(SparkApplication):
    spark_run: SparkSplitRun
    drive: Drive

    def externals(self) -> tuple[ExternalObject, ...]:
        return self.spark_run.externals()

    def stop(self) -> None: ...

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        spec = self.spark_run.spec(attempt)
        try:
            self.drive(spec)
        except AssertionError:
            raise  # of the test itself
        except Exception as error:
            raise region_failed(spec, read_failure(spec), error) from error
        return None


APPLICATION = """
import sys, time
from pathlib import Path
from airflow_recovery.driver import driver
from airflow_recovery.driver.region_spec import RegionSpec

while True:
    for each in sorted(Path(sys.argv[1]).glob("*.json")):
        code = driver.drive(RegionSpec.from_json(each.read_text()))
        each.unlink()
        if code == driver.FAILED:
            sys.exit(code)
        each.with_suffix(".part").write_text(str(code))
        each.with_suffix(".part").rename(each.with_suffix(".code"))
    time.sleep(0.05)
"""


class DriverProcess:
    """A real spark-submit in a session of its own, which drives one attempt after the other until one fails."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        application = folder / "application.py"
        application.write_text(APPLICATION)
        conf = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            # The files of a batch lie on this disk: no job of its own to list them.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        settings = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
        path = os.pathsep.join([str(CODE), str(Path(__file__).parents[2])])
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                ["spark-submit", "--master", "local[2]", *settings, str(application), str(folder)],
                env=submit_environment({**os.environ, "PYTHONPATH": path}),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def begin(self, spec: RegionSpec) -> None:
        """Hand it an attempt."""
        path = self._path(spec).with_suffix(".part")
        path.write_text(spec.to_json())
        path.rename(path.with_suffix(".json"))

    def _path(self, spec: RegionSpec) -> Path:
        return self.folder / f"{spec.identity.group_id}-{spec.attempt}.code"

    def wait(self, what: Callable[[], bool], said: str) -> None:
        """Wait until it is so; fails with the driver's log if the process ends before."""
        wait_until(what, said, describe=self.log, is_over=lambda: self.process.poll() is not None)

    def code(self, spec: RegionSpec) -> int:
        """Wait for the attempt's exit code."""
        path = self._path(spec)
        self.wait(path.exists, "the end of the attempt")
        return int(path.read_text())

    def drive(self, spec: RegionSpec) -> None:
        """To the end, whichever it is."""
        self.begin(spec)
        path, over = self._path(spec), "the end of the attempt"
        wait_until(lambda: path.exists() or self.process.poll() is not None, over)
        if not path.exists() or path.read_text() != "0":
            raise RegionFailed(f"Error code is: {self.process.poll()}.")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """To the whole session: the driver's Python, its JVM, and its Python workers."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def driver_process(folder: Path) -> Iterator[DriverProcess]:
    """Leaves no process behind."""
    process = DriverProcess(folder)
    try:
        yield process
    finally:
        try:
            process.kill()
        except ProcessLookupError:
            process.process.wait()
