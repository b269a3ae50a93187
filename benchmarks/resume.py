"""Resume of a run with 1,000 finished regions, on a store that takes its time: when does useful work begin again?"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from unittest.mock import patch

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.inputs import InputRef
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
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import PAGE_KEYS, ObjectInfo, ObjectStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.s3_server import VersityServer, find_versitygw
from airflow_recovery.verify import verify_run
from benchmarks.plan_cases import random_run
from benchmarks.report import Figure, Report, Table, summary

REGIONS = 1_000
GOALS_S = {150: 5.0, 10: 1.5}
"""Milliseconds a request -> the goal in seconds."""
SMOOTH = "nothing has failed so far"
FAILED = "an attempt has failed; no snapshot"
SNAPSHOT = "an attempt has failed; with a snapshot"
WRITERS = 32
IDENTITY = RunIdentity("resume", "date-2026-01-01T000000Z", "job")
BUCKET = "recovery"

log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)


class DelayedStore(DelegatingStore):
    """``inner``, where every request (of a listing, every page) takes ``delay_s`` longer. Counts them."""

    def __init__(self, inner: ObjectStore, delay_s: float) -> None:
        super().__init__(inner)
        self.delay_s = delay_s
        self.requests = 0

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        found = self.inner.list(prefix, start_after=start_after)
        while True:
            self._wait()
            page = [*islice(found, PAGE_KEYS)]
            yield from page
            if len(page) < PAGE_KEYS:
                return

    @contextmanager
    def _around(self, request: str, key: str) -> Iterator[None]:
        self._wait()
        yield

    def _wait(self) -> None:
        self.requests += 1
        time.sleep(self.delay_s)


class Begun(Exception):
    """Spark would start now."""


@dataclass
class StopWatch(SparkApplication):
    """A `SparkApplication` that stops where Spark would start."""

    def externals(self) -> tuple[ExternalObject, ...]:
        return ()

    def before_claim(self, state: RunState) -> None:
        raise Begun

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        raise AssertionError("before_claim comes first")

    def stop(self) -> None:
        pass


def measure(folder: Path, repeats: int | None) -> Report:
    """The pre-check of the next region, from a new process's first request to the moment before its claim."""
    rounds = repeats or 3
    topology, _ = random_run(REGIONS + 1)
    folder.mkdir(parents=True)
    rows: list[tuple[object, ...]] = []
    samples: dict[str, list[float]] = {}
    figures = []
    with ExitStack() as stack:
        open_journal, served = _journal_store(folder, stack)
        results = LocalStore(f"file://{folder / 'results'}")
        for said in (SMOOTH, FAILED, SNAPSHOT):
            identity = replace(IDENTITY, group_id="smooth" if said is SMOOTH else "failed")
            if said is SNAPSHOT:
                _leave_a_snapshot(open_journal(), identity, topology)
            else:
                write_finished(open_journal(), results, identity, topology, REGIONS, has_failed=said is FAILED)
            for delay_ms, goal_s in GOALS_S.items():
                times, requests = _timed(open_journal, results, identity, topology, delay_ms / 1000, rounds)
                samples[f"{said}, {delay_ms} ms"] = times
                rows.append((said, delay_ms, requests, *summary(times)))
                found, goal = median(times), f"at most {goal_s:g} s"
                figures.append(Figure(f"{said}, {delay_ms} ms a request", found, "s", goal, found <= goal_s))
        begun = time.perf_counter()
        report = verify_run(
            open_journal(),
            lambda location: results,
            dag_id=identity.dag_id,
            run_key=identity.run_key,
            group_id="failed",
        )
        figures.append(Figure(f"verify of {REGIONS} regions", time.perf_counter() - begun, "s"))
        figures.append(
            Figure("invariants that it found violated", len(report.violated), "", "none", not report.violated)
        )
    return Report(
        name="resume",
        title=f"Resume of a run with {REGIONS} finished regions",
        method=(
            f"A random DAG whose regions have all finished but one, with the journal on {served} and every request "
            "delayed. A new process, with a client of its own, runs the real pre-check of the region that is left: it "
            "lists the journal, reads what it must, evaluates, and asks for the data of its inputs. Measured up to the "
            "moment before its claim. Where nothing has ever failed, only its inputs are read; after a failure, every "
            "outcome is: of the snapshot that tasks leave while their Spark starts, or, where there is none, one by "
            "one over 64 connections, which costs the SDK about 1 ms of CPU each. The time that Airflow and Spark "
            "take to start is not in it."
        ),
        figures=figures,
        tables=[Table("Seconds", ("the run", "ms a request", "requests", "median", "least", "most", "tries"), rows)],
        samples=samples,
    )


def _journal_store(folder: Path, stack: ExitStack) -> tuple[Callable[[], ObjectStore], str]:
    """Makes stores, each with connections of its own; and what serves them."""
    if find_versitygw() is None:
        return lambda: LocalStore(f"file://{folder / 'journal'}"), "the local disk (no S3 server is installed)"
    # It would close the connection after each answer, which S3 does not.
    stack.enter_context(patch.dict(os.environ, {"VGW_KEEP_ALIVE": "true"}))
    server = VersityServer(folder / "s3")
    stack.callback(server.stop)
    server.start()
    server.create_bucket(BUCKET)
    stack.enter_context(patch.dict(os.environ, server.environment()))
    return (
        lambda: S3Store(f"s3://{BUCKET}/journal", endpoint_url=server.endpoint_url, session=server.session()),
        "versitygw over HTTP (which keeps connections open, as S3 does)",
    )


def write_finished(
    store: ObjectStore,
    results: ObjectStore,
    identity: RunIdentity,
    topology: PlanRecord,
    count: int,
    *,
    has_failed: bool = False,
) -> None:
    """The journal and the results of a run whose first ``count`` regions have finished."""
    journal = Journal(store, identity, writer="w")
    journal.put_plan(topology)
    hashed = plan_hash(topology)
    failed = topology.regions[count // 2].name if has_failed else None

    def pins(region: RegionPlan) -> tuple[InputRef, ...]:
        return tuple(InputRef(producer, 2 if producer == failed else 1) for producer in region.inputs)

    def finish(at: int) -> None:
        region = topology.regions[at]
        attempt = 1
        if region.name == failed:
            journal.claim(_claim(region, attempt, hashed, pins(region)))
            journal.fence(Outcome(region.name, 1, AttemptState.FENCED, "w", "now", cause=FenceCause.OWN_FAILURE))
            attempt = 2
        location = f"{journal.layout.data_of_number(region.name, attempt)}/{region.name}"
        info = results.put(f"{location}/part-0", region.name.encode())
        manifest = PartitionManifest(
            region.name, f"{results.base_uri}/{location}", (ResultObject("part-0", info.size, info.etag),), 1
        )
        journal.claim(_claim(region, attempt, hashed, pins(region)))
        outcome = Outcome(region.name, attempt, AttemptState.FINISHED, "w", "now", "code", pins(region))
        journal.finish(replace(outcome, outputs=(manifest,)))

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(finish, range(count)))


def _leave_a_snapshot(store: ObjectStore, identity: RunIdentity, topology: PlanRecord) -> None:
    """As a task does while its Spark starts."""
    journal = Journal(store, identity, writer="first", writes_snapshot=True)
    journal.renew_snapshot(journal.list(region.name for region in topology.regions))
    journal.wait_for_snapshot()


def _claim(region: RegionPlan, attempt: int, plan: str, pins: tuple[InputRef, ...]) -> Claim:
    return Claim(region.name, attempt, "w", plan, pins, "run", 1, f"ti-{region.name}", "tag", "now")


def _timed(
    open_journal: Callable[[], ObjectStore],
    results: ObjectStore,
    identity: RunIdentity,
    topology: PlanRecord,
    delay_s: float,
    rounds: int,
) -> tuple[list[float], int]:
    times: list[float] = []
    for _ in range(rounds):
        journal = DelayedStore(open_journal(), delay_s)
        data = DelayedStore(results, delay_s)
        begun = time.perf_counter()
        try:
            RegionTask(_run(journal, data, identity, topology), topology.regions[-1].name, StopWatch()).execute()
        except Begun:
            times.append(time.perf_counter() - begun)
    return times, journal.requests + data.requests


def _run(journal: ObjectStore, data: ObjectStore, identity: RunIdentity, topology: PlanRecord) -> Run:
    names = [region.name for region in topology.regions]
    tasks = FakeAirflow(dict.fromkeys(names, ()))
    own = tasks.start(names[-1])
    return Run(
        plan=topology,
        journal=Journal(journal, identity, writer=uuid.uuid4().hex),
        task_instances=tasks.clear_client(own),
        available=ResultProber(lambda location: data),
        task_keys={name: name for name in names},
        task=TaskIdentity("run", 1, own.ti_id),
        now=lambda: "now",
        log=log,
    )
