"""What a schedule moves through: DAG runs of a job, two stores, and the real code of each try over them."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import Decision, RegionTask
from airflow_recovery.attempt.release import release_consumed, release_published
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.attempt.shared import SharedApplication
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import SubtasksUnknown
from airflow_recovery.journal.events import JobEvent
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout, shared_identity
from airflow_recovery.journal.owner import own_results
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import EventFold
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.journal.stream import NoEvents
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.components import Component, UnseenCode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.sinks.committer import Committer
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.testing.fake_airflow import ALL_SUCCESS, FakeAirflow
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation.dag_run import PUBLISH, DagRun
from airflow_recovery.testing.simulation.event_files import EventFile, EventFiles
from airflow_recovery.testing.simulation.folders import FolderSpark
from airflow_recovery.testing.simulation.jobs import IDENTITY, SimulatedJob
from airflow_recovery.testing.simulation.ledger import RUN_PREFIX, Ledger, SharedLedger
from airflow_recovery.testing.simulation.memory import Clock, MemoryStore, ProcessStore, SimulatedJournal
from airflow_recovery.testing.simulation.network import Network
from airflow_recovery.testing.simulation.spark import Cluster, FakeSpark
from airflow_recovery.testing.simulation.strands import Process, current_runner
from airflow_recovery.testing.simulation.versions import VersionToCome, as_this_version

if TYPE_CHECKING:
    from airflow_recovery.testing.simulation.tables import SimulatedTables


class _Told(logging.Handler):
    """What the code under test logs is part of what happened."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"    {record.getMessage()}"[:300])


class World:
    """What a schedule moves through. ``by()`` names who is at work now, ``note`` takes the log.

    ``main`` is the run that the schedule is about; ``others`` are at work at the same time, over the same stores.
    ``moment``: how many changes of the stores there were; ``wrong``: what their checkers have found. ``refused``:
    what a sink takes nothing of, by region and code. ``is_upgraded``: processes begin with a version to come.
    """

    def __init__(  # noqa: PLR0913 - what goes wrong, each with its default
        self,
        job: SimulatedJob,
        rng: random.Random,
        by: Callable[[], str],
        note: Callable[[str], None],
        *,
        publishes: bool = True,
        page_keys: int | None = None,
        store_faults: int = 0,
        store_fault_rate: float = 0.0,
        trouble: float = 0.0,
        heartbeat_timeout_s: float = 0.0,
        detached_share: float = 0.0,
        clocks_differ_s: float = 0.0,
        shares_results_base: bool = False,
        releases: Retention | None = None,
        has_event_files: bool = False,
    ) -> None:
        self._whole = job
        self._clocks_differ_s = clocks_differ_s
        self._shares_results_base = shares_results_base
        self._releases = releases
        self._rng = rng
        self.clock = Clock()
        self.cluster = Cluster(rng, trouble, detached_share, heartbeat_timeout_s)
        self.journal_store = MemoryStore("memory://journal", self.clock)
        self.results = MemoryStore("memory://results", self.clock)
        self.network = Network(self.journal_store, rng.getrandbits(32), rate=store_fault_rate, limit=store_faults)
        self._way = self.network if store_faults else None
        self.moment = 0
        self.wrong: list[str] = []
        self._data: dict[str, tuple[int, str]] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._publish_keys = (PUBLISH,) if publishes else ()
        self.journal_store.on_put = lambda key, *written: self._hears(
            key, lambda it: it.journal_put(as_this_version(key), *written)
        )
        self.journal_store.on_delete = lambda key: self._hears(key, lambda it: it.journal_deleted(as_this_version(key)))
        self.results.on_put = lambda key, body, replaced: self._hears(
            key, lambda it: it.data_put(key, body, replaced, self.results.get(key).info.etag, by())
        )
        self.results.on_delete = lambda key: self._hears(key, lambda it: it.data_deleted(key, by()))
        # Of its own, outside of the tree of loggers: no setting of this interpreter reaches it.
        self.log = logging.Logger("simulated", logging.INFO)
        self.log.addHandler(_Told(note))
        self.epoch: str | None = None
        self._run_number = 1
        self._page_keys = page_keys
        self._writers = 0
        self.refused: set[tuple[str, str | None]] = set()
        self.is_upgraded = False
        self.event_files = EventFiles() if has_event_files else None
        ledger = self._new_ledger(job, IDENTITY)
        self.main = self._new_dag_run("run 1", job, IDENTITY, ledger, self._new_target(ledger), self.journal_store)
        self.others: list[DagRun] = []
        self.tables = self._new_tables(job, store_faults, store_fault_rate)

    def _new_dag_run(
        self,
        name: str,
        job: SimulatedJob,
        identity: RunIdentity,
        ledger: Ledger,
        target: FakeTarget,
        store: MemoryStore,
    ) -> DagRun:
        return DagRun(name, job, identity, ledger, target, store, self._publish_keys)

    def _new_tables(self, job: SimulatedJob, faults: int, rate: float) -> SimulatedTables | None:
        if not job.tables:
            return None
        from airflow_recovery.testing.simulation.tables import SimulatedTables

        rng = random.Random(self._rng.getrandbits(32))
        committing = job.regions.keys() - job.folders
        self.cluster.tables = SimulatedTables(self.clock, rng, (rate, faults), self._ledger_of, committing, self.wrong)
        return self.cluster.tables

    # the run that the schedule is about

    @property
    def job(self) -> SimulatedJob:
        """What it runs today."""
        return self.main.job

    @job.setter
    def job(self, job: SimulatedJob) -> None:
        self.main.job = job

    @property
    def airflow(self) -> FakeAirflow:
        """Its tasks."""
        return self.main.airflow

    @property
    def ledger(self) -> Ledger:
        """Who checks it."""
        return self.main.ledger

    @property
    def target(self) -> FakeTarget:
        """Where it commits."""
        return self.main.target

    @property
    def layout(self) -> JournalLayout:
        """Where it lies."""
        return self.main.layout

    @property
    def history(self) -> EventFold:
        """What its events say."""
        return self.main.history

    def lose_database(self) -> None:
        """A re-created run of the same key: nothing is left of the task instances."""
        self._run_number += 1
        self.main.name = f"run {self._run_number}"
        self.airflow.lose_database()

    # others

    def another_run(self, number: int) -> DagRun:
        """A run of another date."""
        identity = RunIdentity(IDENTITY.dag_id, f"date 2026-01-{number + 1:02}T00:00:00+00:00", IDENTITY.group_id)
        ledger = self._new_ledger(self.job, identity)
        target = self._new_target(ledger)
        return self._joined(f"run of day {number + 1}", identity, ledger, target, self.journal_store)

    def twin(self) -> DagRun:
        """Another run of the very key, as where a partition is processed again."""
        twin = self._joined(f"twin {len(self.others) + 1}", IDENTITY, self.ledger, self.target, self.journal_store)
        twin.history = self.history
        return twin

    def other_deployment(self) -> DagRun:
        """A run of that key in a deployment with a journal of its own, and with the same place of results.

        What it commits to sinks is not followed, nor what it commits split by split.
        """
        store = MemoryStore("memory://other-journal", self.clock)
        return self._joined("run of the other deployment", IDENTITY, self.ledger, FakeTarget(), store)

    def _joined(
        self, name: str, identity: RunIdentity, ledger: Ledger, target: FakeTarget, store: MemoryStore
    ) -> DagRun:
        other = self._new_dag_run(name, self.job, identity, ledger, target, store)
        self.others.append(other)
        return other

    # who hears what

    def _hears(self, key: str, tell: Callable[[Ledger], None]) -> None:
        match = RUN_PREFIX.match(key)
        if match is not None:
            self.moment += 1
            tell(self._ledger_of(match[0]))

    def _ledger_of(self, prefix: str) -> Ledger:
        if prefix not in self._ledgers:
            makers = [region.name for region in self._whole.plan.regions if region.persistent]
            wrote = self.cluster.wrote[prefix]
            self._ledgers[prefix] = SharedLedger(makers, _modes(self._whole), wrote, self._data, self.wrong, self._runs)
        return self._ledgers[prefix]

    def _new_target(self, ledger: Ledger) -> FakeTarget:
        return FakeTarget(
            lambda token: ledger.sinks.took(token.region, token.attempt),
            lambda token: (token.region, ledger.fingerprint_of(token.region, token.attempt)) in self.refused,
        )

    def _runs(self) -> list[Ledger]:
        return [ledger for ledger in self._ledgers.values() if not isinstance(ledger, SharedLedger)]

    def built(self, region: str) -> int:
        """The highest attempt at a shared result of that region."""
        shared = [ledger for ledger in self._ledgers.values() if isinstance(ledger, SharedLedger)]
        return max((ledger.regions[region].latest_attempt for ledger in shared), default=0)

    def _new_ledger(self, job: SimulatedJob, identity: RunIdentity) -> Ledger:
        prefix = JournalLayout(identity).prefix
        sinks = {name: spec.mode.value for name, spec in self._followed_sinks(job).items()}
        splits = [region.name for region in job.plan.regions if isinstance(region.mode, SplitPlan)]
        self._ledgers[prefix] = Ledger(
            job.regions,
            job.finals,
            _modes(job),
            self.cluster.wrote[prefix],
            sinks,
            splits,
            data=self._data,
            wrong=self.wrong,
            shared=lambda key: self._ledger_of(JournalLayout(shared_identity(key)).prefix),
        )
        return self._ledgers[prefix]

    def _followed_sinks(self, job: SimulatedJob) -> dict[str, CommitSpec]:
        """The sinks whose rows the ledger of a run follows, by region."""
        return {region.name: region.commit for region in job.plan.regions if region.commit is not None}

    # as a process sees it

    def journal(
        self, writer: str, dag_run: DagRun | None = None, says: Callable[[JobEvent], None] | None = None
    ) -> SimulatedJournal:
        """As a process sees it, which ``says`` what it writes, too."""
        of = dag_run or self.main

        def record(event: JobEvent) -> None:
            of.history.add(event)
            if says is not None:
                says(event)

        way = self._way if of.journal_store is self.journal_store else None
        store = self.by_version(ProcessStore(of.journal_store, way, self._page_keys))
        return SimulatedJournal(store, of.identity, writer=writer, listener=Recorder(record, self._now))

    def by_version(self, store: ProcessStore) -> ProcessStore | VersionToCome:
        """The journals' store, as a process sees it that begins now."""
        return VersionToCome(store, self.clock) if self.is_upgraded else store

    def listener(self) -> Recorder:
        """Makes events of what is written."""
        return Recorder(self.history.add, self._now)

    def state(self) -> RunState:
        """What the journal says at this moment, read by nobody in particular."""
        store = VersionToCome(self.journal_store, self.clock)  # which reads whatever there is
        journal = SimulatedJournal(store, IDENTITY, writer="onlooker")
        return journal.load(journal.list(self.job.regions))

    def run(self, own: TaskTry, dag_run: DagRun | None = None, job: SimulatedJob | None = None) -> Run:
        """What a try knows, for which the job is ``job``. Whoever is given it closes its events."""
        of = dag_run or self.main
        self._writers += 1
        results = ProcessStore(self.results)
        job = job or of.today
        wrong_by_s = self._wrong_by_s()
        events: EventFile | NoEvents = NoEvents()
        if self.event_files is not None and of is self.main:
            events = self.event_files.begin(self.journal("stream", of).store, of.identity, self._now)
        run = Run(
            plan=job.shared_plan,
            journal=self.journal(f"writer {self._writers}", of, events.record),
            events=events,
            task_instances=of.airflow.clear_client(own, gate=_ask_airflow),
            available=self.prober(results),
            task_keys={name: name for name in job.regions},
            task=_identity(of, own),
            now=lambda: self._now(wrong_by_s),
            log=self.log,
            publish_keys=of.publish_keys,
            components_of=lambda region: (UNSEEN,) if region in job.unseen else (),
            heartbeat_timeouts=HeartbeatTimeouts(
                self.cluster.heartbeat_timeout_s,
                clock=lambda: self.monotonic_s(wrong_by_s),
                sleep=self.clock.sleep,
            ),
            is_live_run=self._is_live_run,
            open_committer=lambda spec: self.committer(of, spec),
            **self._more_of_run(of, own, job),
        )
        run.__dict__["plan_hash"] = job.plan_hash  # the same for every try: computed once
        # In Python 3.11 all runs compute a cached property under one lock: no strand may give the turn away in there.
        run.__dict__["_digest_key"] = "simulated"
        return run

    def _more_of_run(self, of: DagRun, own: TaskTry, job: SimulatedJob) -> dict[str, Any]:
        """Further fields of the `Run` that a try has."""
        return {}

    def committer(self, dag_run: DagRun, spec: CommitSpec) -> Committer:
        """The way to the target of a sink, as a process goes it."""
        return dag_run.target.committer(spec, lambda request: current_runner().switch(request))

    def prober(self, results: ProcessStore) -> ResultProber:
        """Asks what is there, as a process does."""
        ask_table = self.tables.client.why_lost if self.tables is not None else None
        return ResultProber(lambda location: results, ask_table=ask_table)

    def _is_live_run(self, name: str) -> bool:
        return any(run.name == name and not run.has_ended for run in (self.main, *self.others))

    def _wrong_by_s(self) -> float:
        """How far the clock of the next process is off."""
        differ_s = self._clocks_differ_s
        return self._rng.uniform(-differ_s, differ_s) if differ_s else 0.0

    def monotonic_s(self, wrong_by_s: float) -> float:
        """By what a process measures how long it has waited."""
        return self.clock.now_s + wrong_by_s

    def _now(self, wrong_by_s: float = 0.0) -> str:
        return f"{self.clock.wall_s + wrong_by_s:.2f}"

    def execute(self, own: TaskTry, process: Process, dag_run: DagRun | None = None) -> int | None:
        """One try, in its own strand. Returns the attempt that it reports success with; `None` for the publish."""
        of = dag_run or self.main
        if own.task_id != PUBLISH and own.task_id not in of.job.regions:
            raise SubtasksUnknown(f"{own.task_id}: today's job has no such region.")
        job = self._job_of(own, of)
        run = self.run(own, of, job)
        try:
            return self._executed(run, own, process, of, job)
        finally:
            run.events.close()

    def _job_of(self, own: TaskTry, of: DagRun) -> SimulatedJob:
        """The job as the task of that try knows it."""
        return of.today

    def _executed(self, run: Run, own: TaskTry, process: Process, of: DagRun, job: SimulatedJob) -> int | None:
        results = ProcessStore(self.results)
        # What the other deployment lets go of, this one's checker could not tell from what is taken from it.
        releases = self._releases if of.journal_store is self.journal_store else None
        tables = self.tables.client if self.tables is not None else None
        if own.task_id == PUBLISH:
            PublishTask(run).execute()
            if releases is not None:
                release_published(run, results, releases, tables)
            return None
        started: list[FakeSpark] = []
        result = self._region_task(run, own, process, of, job, results, started).execute()
        if result.decision is Decision.KEPT:
            started[0].leave_again()
        attempt = result.attempt
        if releases is not None:
            release_consumed(run, own.task_id, results, releases, tables)
        return attempt

    def _region_task(
        self,
        run: Run,
        own: TaskTry,
        process: Process,
        of: DagRun,
        job: SimulatedJob,
        results: ProcessStore,
        started: list[FakeSpark],
    ) -> RegionTask:
        """``started`` takes the applications that it makes."""
        name = own.task_id

        def application(journal: Journal) -> FakeSpark:
            # What lies outside is the same for all.
            def today() -> SimulatedJob:
                return self.job if name in self.job.regions else job

            kind = self._kind_of_spark(job, name)
            made = kind(self.cluster, job, today, name, process, journal, results, read_from=of.layout.prefix)
            if isinstance(made, FolderSpark):
                made.of_try = run
            self._prepare(made, of, own)
            started.append(made)
            return made

        def prepare_journal() -> None:
            if self._shares_results_base:
                own_results(run.journal.store, results)

        epoch = self.epoch if of is self.main else None
        if not job.regions[name].persistent:
            return RegionTask(
                run,
                name,
                application(run.journal),
                epoch=epoch,
                prepare_journal=prepare_journal,
                unseen_code=UnseenCode.RUN_ON_CLEAR,
            )
        shared = SharedApplication(
            run,
            name,
            lambda identity: application(run.journal.sibling(identity)),
            timeout_s=self.cluster.heartbeat_timeout_s,
            clock=run.heartbeat_timeouts.clock,
            sleep=self.clock.sleep,
        )
        return RegionTask(run, name, shared, epoch=epoch, prepare_journal=prepare_journal)

    def _kind_of_spark(self, job: SimulatedJob, region: str) -> type[FakeSpark]:
        return FolderSpark if region in job.folders else FakeSpark

    def _prepare(self, spark: FakeSpark, of: DagRun, own: TaskTry) -> None:
        """Called with the application that was made for a try, for subclasses."""


UNSEEN = Component("application", "s3://code/clean.py", seen=False)


def _modes(job: SimulatedJob) -> dict[tuple[str, str], str]:
    return {(region.name, result): mode.value for region in job.plan.regions for result, mode in region.determinism}


def _identity(dag_run: DagRun, own: TaskTry) -> TaskIdentity:
    grant = dag_run.airflow.grant(own.task_id)
    rule = dag_run.airflow.rules.get(own.task_id, ALL_SUCCESS)
    return TaskIdentity(dag_run.name, own.try_number, own.ti_id, grant, rule)


def _ask_airflow(request: str) -> None:
    current_runner().switch(f"airflow: {request}")
