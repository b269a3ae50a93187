"""Task processes: the real protocol, a real store and a real PostgreSQL; without Airflow and without Spark.

Each is forked, so that a kill or a stop at a step is a signal that it sends to itself right before that step.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from staging import ROWS, Warehouse, stage

from airflow_recovery.attempt.application import ClaimedAttempt, SparkApplication
from airflow_recovery.attempt.region_task import RegionResult, RegionTask
from airflow_recovery.attempt.run import Run, TaskIdentity
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import Outcome, PlanRecord, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.sinks import CommitMode, CommittingSink, sink_of, spec_of
from airflow_recovery.sinks import postgres as module
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.testing.patience import NEVER_S

IDENTITY = RunIdentity("dag", "date-1", "flights")
REGION = "delays"


class NobodyAsks:
    """Task instances that nobody can clear, and it takes every process for the task's own: the zombie too."""

    def observe(self) -> None:
        return None

    def live_check(self) -> None: ...

    def states(self, keys: object) -> dict[str, str]:
        return {}

    def clear(self, request: object) -> None:
        raise AssertionError("nobody is cleared")


class SteppingStore(LocalStore):
    """A store that says what it is about to write."""

    step: Callable[[str], None] = staticmethod(lambda what: None)

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        type(self).step(f"before {key.rpartition('.')[2]}")
        return super().put_if_absent(key, body)


class Prepares(SparkApplication):
    """In place of Spark: writes the rows below the attempt's own prefix, and the finish."""

    def __init__(self, case: Case, journal: Journal) -> None:
        self._case = case
        self._journal = journal

    def externals(self) -> tuple[()]:
        return ()

    def run(self, attempt: ClaimedAttempt) -> Outcome:
        claim = attempt.claim
        data = JournalLayout(self._case.identity).data_of(claim)
        manifest = replace(stage(self._case.warehouse.store, data, self._case.rows), result=claim.region)
        self._case.meanwhile()
        outcome = attempt.trace.finished("now", (manifest,))
        self._journal.finish(outcome)
        return outcome

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Case:
    """One run with one sink. ``sink`` may write into the warehouse; ``meanwhile`` happens while Spark runs.

    ``dag_tasks``: all tasks of the DAG, if there are others. ``dags``: the DAGs that Airflow has, if it can be asked.
    """

    warehouse: Warehouse
    sink: CommittingSink
    journal: Path
    rows: dict[str, list[object]] = field(default_factory=lambda: ROWS)
    code: str = "code"
    meanwhile: Callable[[], object] = lambda: None
    identity: RunIdentity = IDENTITY
    region: str = REGION
    dag_tasks: tuple[str, ...] = ()
    dags: tuple[str, ...] | None = None

    def task(self) -> RegionResult:
        """One try, to its end. Raises what the task raises."""
        store = SteppingStore(str(self.journal))
        journal = Journal(store, self.identity, writer=uuid.uuid4().hex)
        name = self.region
        plan = RegionPlan(name, (name,), (name,), (), True, self.code, commit=spec_of(self.sink, name))
        run = Run(
            plan=PlanRecord("jobs:flights", (plan,)),
            journal=journal,
            task_instances=NobodyAsks(),
            available=ResultProber(self.warehouse.resources.open_location),
            task_keys={name: name},
            task=TaskIdentity("run", 1, str(os.getpid())),
            now=lambda: "now",
            log=logging.getLogger("task process"),
            open_committer=lambda spec: sink_of(spec).open(self.warehouse.resources),
            dag_tasks=self.dag_tasks,
            has_dag=lambda dag_id: None if self.dags is None else dag_id in self.dags,
        )
        runner: Any = Prepares(self, journal)
        return RegionTask(run, name, runner).execute()

    def state(self) -> RegionState:
        journal = self.journal_of()
        return journal.load(journal.list([self.region])).of(self.region)

    def journal_of(self) -> Journal:
        return Journal(LocalStore(str(self.journal)), self.identity, writer="test")

    @property
    def identity_key(self) -> RegionKey:
        return RegionKey.of(self.identity, self.region)

    @property
    def mode(self) -> CommitMode:
        return CommitMode(self.sink.mode)


class TaskProcess:
    """A forked process that runs one try; at ``step`` it sends ``harm`` to itself.

    Its transaction may be idle for as long as the test takes.
    """

    started: ClassVar[list[int]] = []
    """The process ids of those that `kill_all` has to look at."""

    def __init__(self, case: Case, step: str = "", harm: signal.Signals = signal.SIGKILL) -> None:
        self._report, report = os.pipe()
        self.pid = os.fork()
        self.started.append(self.pid)
        if self.pid == 0:
            said = "unknown"
            try:
                module.IDLE_TIMEOUT_S = module.LOCK_TIMEOUT_S = NEVER_S
                _harm_at(step, harm)
                case.task()
                said = "success"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
                traceback.print_exc()
            finally:
                os.write(report, said.encode())
                os._exit(0)
        os.close(report)

    def wait(self) -> str:
        """What it ended with, ``stopped``, or ``killed``."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return "stopped"
        said = b""
        while more := os.read(self._report, 65536):
            said += more
        os.close(self._report)
        return said.decode() or "killed"

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @classmethod
    def kill_all(cls) -> None:
        """Kill what a failed test has left running or stopped."""
        while cls.started:
            pid = cls.started.pop()
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


STEPS = (
    "before claim",
    "before outcome",
    "copy",
    "take",
    "insert",
    "commit",
    "before committed",
    "after committed",
)
"""Prepared is ``outcome``; the target commits between ``commit`` and ``before committed``."""


def _harm_at(step: str, harm: signal.Signals) -> None:
    """In the child: right before ``step``, once."""
    left = [step]

    def at(what: str) -> None:
        if what in left:
            left.remove(what)
            os.kill(os.getpid(), harm)

    SteppingStore.step = staticmethod(at)
    kind = module._PostgresCommitter
    for name in ("copy", "take", "insert"):
        _before(kind, f"_{name}", name, at)
    insert = kind._insert

    def inserts(self: object, *given: object) -> object:
        found = insert(self, *given)  # type: ignore[arg-type]
        at("commit")
        return found

    kind._insert = inserts  # type: ignore[assignment]
    commit = Journal.commit

    def commits(self: Journal, record: object) -> None:
        commit(self, record)  # type: ignore[arg-type]
        at("after committed")

    Journal.commit = commits  # type: ignore[assignment]


def _before(kind: type, method: str, step: str, at: Callable[[str], None]) -> None:
    found = getattr(kind, method)

    def first(self: object, *given: object) -> object:
        at(step)
        return found(self, *given)

    setattr(kind, method, first)
