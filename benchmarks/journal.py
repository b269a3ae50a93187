"""The journal: what a region writes, how fast a history is read back, and how fast a run is verified."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.journal.events import RecordWritten
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import replay
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import AttemptState, Claim, Outcome, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.testing import CountingStore, Verb
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.verify import verify_run
from benchmarks.plan_scale import random_run
from benchmarks.report import Figure, Report, Table, summary
from benchmarks.resume import StopWatch, write_finished

IDENTITY = RunIdentity("journal", "date-2026-01-01T000000Z", "job")
EVENTS = 100_000
FEWER_EVENTS = 10_000
REGIONS, FEWER_REGIONS = 1_000, 100
LINEAR = 1.5
"""Ten times as much may take up to so many times ten times as long."""

WRITES_GOAL = 2
"""A claim and an outcome (docs/protocol.md#requests)."""

CHAIN: Mapping[str, tuple[str, ...]] = {
    "first": (),
    "source": (),
    "inner": ("source",),
    "collects": ("source", "inner"),
    "leaf": ("collects",),
}

log = logging.getLogger(__name__)
log.setLevel(logging.WARNING)


@dataclass
class WritesAtOnce(StopWatch):
    """A `SparkApplication` whose Spark takes no time: one object, then the outcome, as a driver does."""

    journal: Journal
    results: ObjectStore

    def before_claim(self, state: RunState) -> None:
        pass

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        claim = attempt.claim
        outcome = attempt.trace.finished("now", (_made(self.results, claim.region, claim.attempt),))
        self.journal.finish(outcome)
        return outcome


def measure(folder: Path, repeats: int | None) -> Report:
    """Requests of regions without a failure; then CPU-bound reading, each against a tenth of it."""
    rounds = repeats or 3
    folder.mkdir(parents=True, exist_ok=True)
    requests = _requests_by_region(folder)
    figures, samples, tables = _of_requests(requests)
    replays = {count: _timed(_replaying(folder, count), rounds) for count in (FEWER_EVENTS, EVENTS)}
    verifies = {count: _timed(_verifying(folder, count), rounds) for count in (FEWER_REGIONS, REGIONS)}
    for name, times, fewer, more in (
        ("replay of {} events", replays, FEWER_EVENTS, EVENTS),
        ("verify of {} regions", verifies, FEWER_REGIONS, REGIONS),
    ):
        growth = median(times[more]) / median(times[fewer]) / (more / fewer)
        figures.append(Figure(name.format(f"{more:,}"), median(times[more]), "s of CPU"))
        figures.append(
            Figure(
                f"{name.format(f'{more:,}')}: a tenth of it, times ten",
                growth,
                "times as long",
                f"at most {LINEAR} (linear)",
                growth <= LINEAR,
            )
        )
        rows = [(f"{count:,}", *summary(found)) for count, found in times.items()]
        tables.append(Table(name.format("so many"), ("how many", "median", "least", "most", "tries"), rows))
        samples |= {name.format(f"{count:,}"): found for count, found in times.items()}
    return Report(
        name="journal",
        title="The journal: writes of a region, replay of a history, verify of a run",
        method=(
            "Regions of a job without a failure run through the real region task, with an event stream each, over a "
            "store that counts requests; Spark takes no time. Then a history of events in streams of 1,000 each is "
            "folded, and a run whose regions have all finished is verified, both on the local disk, in this process. "
            "Seconds are of CPU, on this machine; what is held to a goal are counts and ratios."
        ),
        figures=figures,
        tables=tables,
        samples=samples,
    )


def _of_requests(requests: Mapping[str, Mapping[str, int]]) -> tuple[list[Figure], dict[str, object], list[Table]]:
    inner = requests["inner"]
    writes = inner["claim"] + inner["outcome"] + inner["other writes"]
    figures = [
        Figure("writes of an inner region", writes, "", f"at most {WRITES_GOAL}", writes <= WRITES_GOAL),
        Figure("writes of its event stream besides, by a thread", inner["segments"], ""),
    ]
    columns = ("region", *inner)
    rows = [(name, *found.values()) for name, found in requests.items()]
    return figures, {"requests": requests}, [Table("Requests to the journal", columns, rows)]


def _requests_by_region(folder: Path) -> dict[str, dict[str, int]]:
    counted = CountingStore(LocalStore(f"file://{folder / 'writes'}"))
    results = LocalStore(f"file://{folder / 'written'}")
    plan = _plan_of(CHAIN)
    tasks = FakeAirflow(CHAIN)
    found = {}
    for name in CHAIN:
        counted.clear()
        own = tasks.start(name)
        writer = uuid.uuid4().hex
        events = EventWriter(counted, IDENTITY, writer)
        journal = Journal(counted, IDENTITY, writer=writer, listener=Recorder(events.record, lambda: "now"))
        run = Run(
            plan=plan,
            journal=journal,
            task_instances=tasks.clear_client(own),
            available=ResultProber(lambda location: results),
            task_keys={name: name for name in CHAIN},
            task=TaskIdentity("run", own.try_number, own.ti_id),
            now=lambda: "now",
            log=log,
            events=events,
        )
        RegionTask(run, name, WritesAtOnce(journal.sibling(IDENTITY), results)).execute()
        events.close()
        tasks.end(own, "success")
        found[name] = _told(counted)
    return found


def _told(counted: CountingStore) -> dict[str, int]:
    put = Verb.PUT_IF_ABSENT
    claims, outcomes, segments = (counted.count(put, name) for name in (".claim", ".outcome", "_streams/"))
    return {
        "claim": claims,
        "outcome": outcomes,
        "other writes": counted.count(put) + counted.count(Verb.PUT) - claims - outcomes - segments,
        "segments": segments,
        "reads": counted.count(Verb.GET),
        "listings": counted.count(Verb.LIST),
    }


def _plan_of(upstream: Mapping[str, tuple[str, ...]]) -> PlanRecord:
    read = {producer for inputs in upstream.values() for producer in inputs}
    return PlanRecord(
        "jobs:journal",
        tuple(RegionPlan(name, (name,), (name,), inputs, name not in read, "f") for name, inputs in upstream.items()),
    )


def _made(results: ObjectStore, region: str, attempt: int) -> PartitionManifest:
    where = f"{region}/{attempt:08d}/{region}"
    info = results.put(f"{where}/part-0", region.encode())
    return PartitionManifest(region, f"{results.base_uri}/{where}", (ResultObject("part-0", info.size, info.etag),), 1)


def _replaying(folder: Path, count: int) -> Callable[[], None]:
    """The history of ``count`` events: a claim and a finish of each attempt."""
    store = LocalStore(f"file://{folder / f'history-{count}'}")
    manifest = PartitionManifest("r", "s3://data/r/00000001/r", (ResultObject("part-0", 1, "e"),), 1)
    for at in range(count // 1_000):
        writer = EventWriter(store, IDENTITY, f"writer-{at:04d}", max_waiting_events=EVENTS)
        for n in range(500):
            name = f"region_{at:04d}_{n:03d}"
            pins = (InputRef("region_0000_000", 1),)
            claim = Claim(name, 1, "w", "0a", pins, "run", 1, "ti", "tag", "now")
            outcome = Outcome(name, 1, AttemptState.FINISHED, "w", "now", "f", pins, outputs=(manifest,))
            writer.record(RecordWritten(occurred_at="now", record=claim))
            writer.record(RecordWritten(occurred_at="now", record=outcome))
        writer.close(timeout_s=60)
    journal = Journal(store, IDENTITY, writer="reader")

    def read() -> None:
        found = replay(journal)
        assert len(found.state.regions) == count // 2

    return read


def _verifying(folder: Path, count: int) -> Callable[[], None]:
    topology, _ = random_run(count)
    journal = LocalStore(f"file://{folder / f'run-{count}'}")
    results = LocalStore(f"file://{folder / f'results-{count}'}")
    identity = replace(IDENTITY, group_id=f"of-{count}")
    write_finished(journal, results, identity, topology, count)

    def verify() -> None:
        report = verify_run(
            journal,
            lambda location: results,
            dag_id=identity.dag_id,
            run_key=identity.run_key,
            group_id=identity.group_id,
        )
        assert not report.violated

    return verify


def _timed(work: Callable[[], None], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return times
