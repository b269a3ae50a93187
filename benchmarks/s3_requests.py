"""Requests to S3 of the demo's regions: those that somebody waits for, and those beside."""

from __future__ import annotations

import logging
import os
import re
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from unittest.mock import patch

from airflow_recovery.attempt.job_plan import JobPlan, plan_job
from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores
from airflow_recovery.job.loading import load_job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.probe import probe
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.attempt_sessions import ServerChoice
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.region_session import RegionSession
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.faulty_store import CountingStore, Verb
from airflow_recovery.testing.s3_server import MotoServer
from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.report import Figure, Report, Table

JOB = "benchmarks.whole_flights:flights"
IDENTITY = RunIdentity("flights_delays", "date=2013-01-01", "flights")
PUBLISH = "publish"
BESIDE = ("release check", "heartbeat")
"""Threads that look for release markers while Spark starts, and give a driver's heartbeats: nobody waits for them."""

log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)
logging.getLogger("botocore").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Request:
    """One request. ``thread`` is the name of the thread that made it."""

    verb: Verb
    key: str
    thread: str


class RecordingStore(CountingStore):
    """Counts, and remembers which thread asked."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.recorded: list[Request] = []

    def _count(self, verb: Verb, key: str) -> None:
        super()._count(verb, key)
        self.recorded.append(Request(verb, key, threading.current_thread().name))


class RecordingStores(Stores):
    """The stores of a deployment whose requests are recorded."""

    def __init__(self, settings: RecoverySettings) -> None:
        super().__init__(settings)
        self.recorded_journal = RecordingStore(open_store(settings.journal))
        self.recorded_results = RecordingStore(open_store(settings.results))

    @property
    def journal(self) -> ObjectStore:
        return self.recorded_journal

    @property
    def results(self) -> ObjectStore:
        return self.recorded_results

    def of_spec(self, spec: StoreSpec) -> ObjectStore:
        """What the Spark driver opens, recorded as well."""
        return self.journal if spec == self.journal_spec else self.results


@dataclass(frozen=True)
class Counted:
    """The requests of one try. ``waited`` are the journal's that somebody waits for, in order."""

    task: str
    inputs: int
    waited: tuple[str, ...]
    beside: tuple[str, ...]
    events: int
    result_listings: int
    external_listings: int

    @property
    def round_trips(self) -> int:
        """Requests that follow each other; outcomes are fetched at once."""
        return sum(1 for at, verb in enumerate(self.waited) if verb != "GET" or self.waited[at - 1 : at] != ("GET",))

    def row(self) -> tuple[object, ...]:
        """A line of the table."""
        counts = [self.waited.count(verb) for verb in ("LIST", "GET", "PUT_IF_ABSENT")]
        others = len(self.waited) - sum(counts)
        beside = ", ".join(f"{count} {verb}" for verb, count in Counter(self.beside).items()) or "none"
        return (
            self.task, self.inputs, *counts, others, self.round_trips,
            beside, self.events, self.result_listings, self.external_listings,
        )  # fmt: skip


COLUMNS = (
    "task",
    "inputs",
    "LIST",
    "GET",
    "PUT if absent",
    "others (start-up probe)",
    "round trips",
    "that nobody waits for",
    "event segments",
    "result listings",
    "source listings",
)


def measure(folder: Path, repeats: int | None) -> Report:
    """One run of the demo's job with all flights in one region, and one with every region kept. Requests don't vary."""
    del repeats
    from scripts.demo.lake import fill_lake

    folder.mkdir(parents=True)
    fill_lake(folder / "lake")
    facts = RunFacts("2013-01-01T00:00:00+00:00", None, None, {}, {"lake": f"file://{folder / 'lake'}"})
    plan = plan_job(load_job(JOB), JOB, facts)
    with (
        MotoServer(folder / "s3") as s3,
        connect_server(conf={"spark.sql.shuffle.partitions": "4"}) as server,
        patch.dict(os.environ, {**s3.environment(), "AWS_ENDPOINT_URL_S3": s3.endpoint_url}),
    ):
        s3.create_bucket("recovery")
        before = _requests_of(s3.log_path)
        stores = RecordingStores(RecoverySettings("s3://recovery/journal", f"file://{folder / 'results'}"))
        with _recorded_drivers(stores):
            first = [_try(stores, plan, facts, server.url, task, 1) for task in _tasks(plan)]
            kept = [_try(stores, plan, facts, server.url, task, 2) for task in _tasks(plan)]
        in_log = _requests_of(s3.log_path) - before
    counted = len(stores.recorded_journal.recorded)
    beyond = sum(max(0, _budget_excess(counted, plan)) for counted in first[1:-1])
    return Report(
        name="s3_requests",
        title="Requests to S3",
        method=(
            "The demo's job with all flights in one region, region by region in this process, on a real Connect "
            "server, with the journal on an S3 "
            "server over HTTP and Airflow's side played by the simulation's. Every request of the region task and of "
            "the Spark driver is recorded. The budget of a region without failure: 2 PUT, 1 LIST (2 for a leaf) and "
            "one GET an input, in 4 round trips (leaf: 5); a region without inputs has nothing to GET. Nobody waits "
            "for a driver's heartbeat (one when it starts, then one every 5 s), nor for the look at who else reads "
            "what is released, while Spark starts. The first region of a run writes the plan besides, and probes the "
            "store. Requests to the results are those of our process (Spark's own are not ours to count); with "
            "results on S3, each is one LIST."
        ),
        figures=[
            Figure("journal requests beyond the budget", beyond, "", "none", beyond == 0),
            Figure("journal requests recorded", counted, ""),
            Figure("journal requests in the S3 server's log", in_log, "", "the same", in_log == counted),
        ],
        tables=[
            Table("An undisturbed run", COLUMNS, [counted.row() for counted in first]),
            Table("The same run cleared: everything is kept", COLUMNS, [counted.row() for counted in kept]),
        ],
        samples={"first": [asdict(counted) for counted in first], "kept": [asdict(counted) for counted in kept]},
    )


def _tasks(plan: JobPlan) -> list[str]:
    return [*(region.name for region in plan.record.regions), PUBLISH]


def _budget_excess(counted: Counted, plan: JobPlan) -> int:
    is_leaf = all(counted.task not in region.inputs for region in plan.record.regions)
    return len(counted.waited) - (2 + (2 if is_leaf else 1) + counted.inputs)


def _try(stores: RecordingStores, plan: JobPlan, facts: RunFacts, url: str, task: str, number: int) -> Counted:
    journal_from, results_from = len(stores.recorded_journal.recorded), len(stores.recorded_results.recorded)
    run = _run(stores, plan, task, number)
    by_name = run.regions
    if task == PUBLISH:
        PublishTask(run).execute()
        patterns = 0
    else:
        job = load_job(JOB)
        region = plan.regions[task]
        patterns = len(region.sources)
        program = RegionProgram(
            job=job,
            ref=JOB,
            region=region,
            facts=facts,
            identity=IDENTITY,
            stores=stores,
            log=log,
        )
        application = RegionSession(program, ServerChoice(url), user_id="benchmark", conf={}, log=log)
        RegionTask(run, task, application, prepare_journal=lambda: probe(stores.journal)).execute()
    run.events.close()
    streams = JournalLayout(IDENTITY).streams
    journal = stores.recorded_journal.recorded[journal_from:]
    state = [request for request in journal if not request.key.startswith(streams)]
    return Counted(
        task=task,
        inputs=len(by_name[task].inputs) if task in by_name else 0,
        waited=tuple(request.verb.value for request in state if request.thread not in BESIDE),
        beside=tuple(request.verb.value for request in state if request.thread in BESIDE),
        events=len(journal) - len(state),
        result_listings=len(stores.recorded_results.recorded) - results_from,
        external_listings=patterns,
    )


def _run(stores: RecordingStores, plan: JobPlan, task: str, number: int) -> Run:
    writer = uuid.uuid4().hex
    tasks = FakeAirflow(dict.fromkeys(_tasks(plan), ()))
    own = tasks.start(task)
    return Run(
        plan=plan.record,
        journal=Journal(stores.journal, IDENTITY, writer=writer),
        task_instances=tasks.clear_client(own),
        available=ResultProber(lambda location: stores.results),
        task_keys={name: name for name in _tasks(plan)},
        task=TaskIdentity("run", number, own.ti_id),
        now=lambda: datetime.now(timezone.utc).isoformat(),
        log=log,
        events=EventWriter(stores.journal, IDENTITY, writer),
    )


@contextmanager
def _recorded_drivers(stores: RecordingStores) -> Iterator[None]:
    with (
        patch("airflow_recovery.driver.region.open_spec_store", stores.of_spec),
        patch("airflow_recovery.driver.outcome.open_spec_store", stores.of_spec),
    ):
        yield


def _requests_of(path: Path) -> int:
    lines: Sequence[str] = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return sum(1 for line in lines if re.search(r'"(?:\x1b\[[0-9;]*m)*(GET|PUT|POST|HEAD|DELETE) /recovery[/?]', line))
