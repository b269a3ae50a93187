"""One run of one job: a fake Airflow, two stores, and the real code of each try over them."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.replay import EventFold
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.splits.mode import SplitPlan
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation.jobs import IDENTITY, SimulatedJob
from airflow_recovery.testing.simulation.ledger import Ledger
from airflow_recovery.testing.simulation.memory import Clock, MemoryStore, ProcessStore, SimulatedJournal
from airflow_recovery.testing.simulation.network import Network
from airflow_recovery.testing.simulation.spark import Cluster, FakeSpark
from airflow_recovery.testing.simulation.strands import Process, current_runner

PUBLISH = "publish"
RETRIES = 1_000_000


class _Told(logging.Handler):
    """What the code under test logs is part of what happened."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(f"    {record.getMessage()}"[:300])


class World:
    """What a schedule moves through. ``by()`` names who is at work now, ``note`` takes the log.

    ``history`` is the fold of all events of the journal, as they were recorded.
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
    ) -> None:
        self.job = job
        self._clocks_differ_s = clocks_differ_s
        self._rng = rng
        self.clock = Clock()
        self.layout = JournalLayout(IDENTITY)
        self.cluster = Cluster(rng, trouble, detached_share, heartbeat_timeout_s)
        self.journal_store = MemoryStore("memory://journal", self.clock)
        self.results = MemoryStore("memory://results", self.clock)
        self.network = Network(self.journal_store, rng.getrandbits(32), rate=store_fault_rate, limit=store_faults)
        self._way = self.network if store_faults else None
        modes = {
            (region.name, result): mode.value for region in job.plan.regions for result, mode in region.determinism
        }
        sinks = {region.name: region.commit.mode.value for region in job.plan.regions if region.commit is not None}
        splits = [region.name for region in job.plan.regions if isinstance(region.mode, SplitPlan)]
        self.ledger = Ledger(job.regions, job.finals, modes, self.cluster.wrote, sinks, splits)
        self.target = FakeTarget(lambda token: self.ledger.sinks.took(token.region, token.attempt))
        self.journal_store.on_put = self.ledger.journal_put
        self.journal_store.on_delete = self.ledger.journal_deleted
        self.results.on_put = lambda key, body, replaced: self.ledger.data_put(
            key, body, replaced, self.results.get(key).info.etag, by()
        )
        self.results.on_delete = lambda key: self.ledger.data_deleted(key, by())
        # Of its own, outside of the tree of loggers: no setting of this interpreter reaches it.
        self.log = logging.Logger("simulated", logging.INFO)
        self.log.addHandler(_Told(note))
        self.history = EventFold({})
        self.epoch: str | None = None
        self.run_number = 1
        self._page_keys = page_keys
        self._writers = 0
        tasks = {name: each.inputs for name, each in job.regions.items()}
        self._publish_keys = (PUBLISH,) if publishes else ()
        tasks |= dict.fromkeys(self._publish_keys, job.finals)
        self.airflow = FakeAirflow(tasks, retries=RETRIES)

    def lose_database(self) -> None:
        """A re-created run of the same key: nothing is left of the task instances."""
        self.run_number += 1
        self.airflow.lose_database()

    def journal(self, writer: str) -> SimulatedJournal:
        """As a process sees it."""
        store = ProcessStore(self.journal_store, self._way, self._page_keys)
        return SimulatedJournal(store, IDENTITY, writer=writer, listener=self.listener())

    def listener(self) -> Recorder:
        """Makes events of what is written."""
        return Recorder(self.history.add, self._now)

    def state(self) -> RunState:
        """What the journal says at this moment, read by nobody in particular."""
        journal = SimulatedJournal(self.journal_store, IDENTITY, writer="onlooker")
        return journal.load(journal.list(self.job.regions))

    def run(self, own: TaskTry) -> Run:
        """What a try knows."""
        self._writers += 1
        results = ProcessStore(self.results)
        job = self.job
        wrong_by_s = self._wrong_by_s()
        run = Run(
            plan=job.plan,
            journal=self.journal(f"writer {self._writers}"),
            task_instances=self.airflow.clear_client(own, gate=_ask_airflow),
            available=ResultProber(lambda location: results),
            task_keys={name: name for name in job.regions},
            task=TaskIdentity(f"run {self.run_number}", own.try_number, own.ti_id, self.airflow.grant(own.task_id)),
            now=lambda: self._now(wrong_by_s),
            log=self.log,
            publish_keys=self._publish_keys,
            heartbeat_timeouts=HeartbeatTimeouts(
                self.cluster.heartbeat_timeout_s,
                clock=lambda: self.clock.now_s + wrong_by_s,
                sleep=self.clock.sleep,
            ),
            is_live_run=lambda run_id: run_id == f"run {self.run_number}",
            open_committer=lambda spec: self.target.committer(spec, lambda request: current_runner().switch(request)),
        )
        run.__dict__["plan_hash"] = job.plan_hash  # the same for every try: computed once
        return run

    def _wrong_by_s(self) -> float:
        """How far the clock of the next process is off."""
        differ_s = self._clocks_differ_s
        return self._rng.uniform(-differ_s, differ_s) if differ_s else 0.0

    def _now(self, wrong_by_s: float = 0.0) -> str:
        return f"{self.clock.now_s + wrong_by_s:.2f}"

    def execute(self, own: TaskTry, process: Process) -> int | None:
        """One try, in its own strand. Returns the attempt that it reports success with; `None` for the publish."""
        run = self.run(own)
        if own.task_id == PUBLISH:
            PublishTask(run).execute()
            return None
        journal = run.journal
        assert isinstance(journal, SimulatedJournal)
        results = ProcessStore(self.results)
        spark = FakeSpark(self.cluster, self.job, lambda: self.job, own.task_id, process, journal, results)
        return RegionTask(run, own.task_id, spark, epoch=self.epoch).execute().attempt


def _ask_airflow(request: str) -> None:
    current_runner().switch(f"airflow: {request}")
