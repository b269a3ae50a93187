"""A simulated run as people, sweepers and crashes meet it: what is there, what was told, and what they can do to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.store.object_store import StoredObject
from airflow_recovery.testing.simulation.jobs import SimulatedJob
from airflow_recovery.testing.simulation.settings import Settings, Trouble
from airflow_recovery.testing.simulation.strands import Process, Strand, StrandRunner
from airflow_recovery.testing.simulation.world import World


@dataclass(frozen=True)
class Given:
    """What a reader outside the run was given, and how often something had happened to the run from outside by then."""

    region: str
    attempt: int
    happened: int


class SimulatedRun:
    """The world of a run, its processes, and what was reported and promised. Who goes on next is asked of ``choose``.

    ``served``: the attempt of each region that its task reported last. ``promised``: attempts of each region up to this
    one do not count, as somebody was told. ``called_success``: tasks that a person has called a success.
    ``unseen_marks``: those of them that nobody has looked at since. ``followed``: what each branch follows when it
    runs; ``marked``: how somebody has marked tasks after the run was cleared for the last time. ``beside``: (DAG,
    region) of DAGs that Airflow has lost, where that region had committed before, so that it is no new name.
    ``unasked``: regions that have changed since a task has asked about their declaration: no task has to ask again.
    ``happened``: how often something has happened from outside; ``given``: what readers of other DAGs were given;
    ``withdrawn``: what people have taken from them. ``hand``: who is at work where no process is. Everything that is
    random comes from ``rng``.
    """

    def __init__(
        self, settings: Settings, rng: random.Random, choose: Callable[[Strand | None], Strand | None]
    ) -> None:
        self.settings = settings
        self.rng = rng
        self._runner = StrandRunner(choose)
        # A step is (process, request, is no zombie) until somebody reads it.
        self.trace: list[str | tuple[str, str, bool]] = []
        self.world = World(
            settings.job,
            self.rng,
            self._who,
            self.note,
            publishes=settings.publishes,
            page_keys=settings.page_keys,
            store_faults=settings.store_faults,
            store_fault_rate=0.1,
            trouble=settings.trouble,
            heartbeat_timeout_s=settings.heartbeat_timeout_s,
            detached_share=settings.detached_share,
            clocks_differ_s=settings.clocks_differ_s,
            shares_results_base=Trouble.DEPLOYMENT in settings.troubles,
            releases=settings.releases,
            has_event_files=settings.has_event_files,
        )
        self.world.airflow.compares = settings.compares
        self.world.journal_store.is_conditional = settings.is_conditional
        self.hand: str | None = None
        self.tries: dict[Process, TaskTry] = {}
        self.promised = dict.fromkeys(settings.job.regions, 0)
        self.served = dict.fromkeys(settings.job.regions, 0)
        self.called_success: set[str] = set()
        self.unseen_marks: set[str] = set()
        self.is_redeployed = self.is_relisted = False
        self.followed = {branch: frozenset(below[:1]) for branch, below in settings.job.branches.items()}
        self.marked: Mapping[str, str] = {}
        self.absent: frozenset[str] = frozenset()
        self._processes: list[Process] = self.world.cluster.processes
        self._versions = 0
        self.beside: set[tuple[str, str]] = set()
        self.unasked: set[str] = set()
        self.happened = 0
        self.given: list[Given] = []
        self.withdrawn: set[tuple[str, int]] = set()
        for old, new in settings.job.renamed.items():
            self.world.ledger.renamed |= {old: new, new: old}
        if settings.job.renamed:
            self._plan_without(frozenset(settings.job.renamed.values()))
        self._backup: list[tuple[dict[str, StoredObject], dict[str, Any]]] = []

    def begins(self, name: str, body: Callable[[], None]) -> Process:
        """A new process with one strand."""
        process = Process(name)
        process.strands.append(Strand(process, body))
        self._processes.append(process)
        return process

    def alive(self) -> list[Process]:
        """Processes that can be killed, told to end, or paused."""
        return [process for process in self._processes if process.strands and not process.is_dead]

    def _who(self) -> str:
        if self.hand is not None:
            return self.hand
        current = self._runner.current
        return current.process.name if current is not None else "nobody"

    def note(self, what: str | None) -> None:
        """For whoever reads the trace."""
        if what is not None:
            self.trace.append(what)

    # what people do and are told

    def mark(self, task: str, state: str) -> None:
        """By hand. Nobody has looked at what a person calls a success before a task begins that does."""
        self.world.airflow.mark(task, state)
        if state == "success":
            self.called_success.add(task)
            self.unseen_marks.add(task)

    def was_promised(self, region: str, attempt: int) -> None:
        """A restart was acknowledged: attempts up to this one do not count."""
        self.promised[region] = max(self.promised[region], attempt)

    def deploy(self, region: str, *, is_rollback: bool = False, end: str = "") -> None:
        """New code of ``region``, or that which it had in the beginning, and the whole run is cleared.

        ``end``: as `SimulatedJob.with_code` has it.
        """
        self._declares(region, lambda job: job.with_code(region, 0 if is_rollback else self._versions, end))
        self.world.airflow.clear_all()

    def deploy_alone(self, region: str, task: str, *, is_rollback: bool = False, is_text: bool = False) -> None:
        """As `deploy`, and ``task``, which is below, is cleared alone. ``is_text``: the code computes the same."""
        if is_text:
            self._declares(region, lambda job: job.with_text(region, self._versions))
        else:
            self._declares(region, lambda job: job.with_code(region, 0 if is_rollback else self._versions))
        self.world.airflow.clear(task)

    def _declares(self, region: str, change: Callable[[SimulatedJob], SimulatedJob]) -> None:
        self.is_redeployed = True
        self._versions += 1
        keys = (info.key for info in self.world.journal_store.list(""))
        if any(f"/{region}/" in key and ".declared-" in key for key in keys):
            self.unasked.add(region)
        self.world.job = change(self.world.job)

    def decide(self, branch: str, followed: frozenset[str], *, clears_all: bool) -> None:
        """The branch follows others from now on, and is cleared with all below it, or with the whole run."""
        self.followed[branch] = followed
        if clears_all:
            self.world.airflow.clear_all()
        else:
            self.world.airflow.clear(branch, downstream=True)

    def set_param(self, value: int, task: str | None) -> None:
        """The run's param has another value from now on, and ``task``, or the whole run, is cleared."""
        self.world.main.in_run = self.world.main.in_run._replace(param=value)
        if task is None:
            self.world.airflow.clear_all()
        else:
            self.world.airflow.clear(task, downstream=True)

    def again(self, *, by_timetable: bool) -> None:
        """The DAG run is deleted, and made again by a backfill, or triggered."""
        self.world.main.in_run = self.world.main.in_run.again(by_timetable=by_timetable)
        self.world.lose_database()

    def has_other_code(self, region: str) -> bool:
        """Than in the beginning."""
        now = self.world.job.regions.get(region)
        return now is not None and now.fingerprint != self.settings.job.regions[region].fingerprint

    @property
    def removable(self) -> list[str]:
        """The regions that come and go, as subtasks of a source do: they read none."""
        whole = self.settings.job
        ends = {*whole.finals, *whole.renamed.values()}
        return [name for name, region in whole.regions.items() if not region.inputs and name not in ends]

    def resize(self, absent: frozenset[str]) -> None:
        """The job as it was, without those regions, and the whole run is cleared."""
        self._plan_without(absent)
        self.is_redeployed = True
        self.world.airflow.clear_all()

    def _plan_without(self, absent: frozenset[str]) -> None:
        self.absent = absent
        self.world.job = self.world.job.resized(self.settings.job, absent)
        self.world.ledger.planned = frozenset(self.world.job.regions)
        self.world.airflow.resize(self.world.main.tasks())

    def rename(self, region: str) -> None:
        """The task of ``region`` gets its other name, and the whole run is cleared."""
        new = self.settings.job.renamed[region]
        self.resize(self.absent ^ {region, new})

    def lose_dag(self, dag_id: str) -> None:
        """Airflow does not have that DAG any more. Whoever commits already is not its new name."""
        self.world.dags.discard(dag_id)
        at_work = {own.task_id for process, own in self.tries.items() if process in self.alive()}
        committed = {key.region for key in self.world.table.tokens if key.dag_id == self.world.main.identity.dag_id}
        self.beside |= {(dag_id, region) for region in at_work | committed}

    def refuse(self, region: str) -> None:
        """The sink of ``region`` takes nothing that today's code makes, and says so: a constraint, a type, a right."""
        self.world.refused.add((region, self.world.job.regions[region].fingerprint))

    def empty(self, region: str, *, overwrites: bool = False) -> None:
        """Somebody removes the rows in the target of ``region``, and perhaps puts others there; the run is cleared."""
        (self.world.target.overwrite if overwrites else self.world.target.empty)(region)
        self.world.ledger.sinks.emptied(region, overwrites=overwrites)
        self.world.airflow.clear_all()

    def meddle(self, region: str, how: str) -> None:
        """Somebody removes some rows in the target of ``region``, drops it or restores it; the run is cleared."""
        target, sinks = self.world.target, self.world.ledger.sinks
        if how == "restores":
            target.applied.remove([each for each in target.applied if each[0] == region][-1])
            sinks.restored(region)
        else:
            (target.undo if how == "drops" else target.thin_out)(region)
            sinks.emptied(region, overwrites=False)
        self.world.airflow.clear_all()

    def jump(self, by_s: float) -> None:
        """What the machines take for the time. None of them waits by that clock."""
        self.world.clock.wall_ahead_s += by_s

    def relist(self, region: str, listed: tuple[str, ...]) -> None:
        """The input of ``region`` has changed, and the whole run is cleared."""
        self.world.job = self.world.job.with_listing(region, listed)
        for dag_run in (self.world.main, *self.world.others):
            dag_run.ledger.changed.add(region)
        self.is_relisted = True
        self.world.airflow.clear_all()

    @property
    def has_backup(self) -> bool:
        """Somebody has backed up the journal."""
        return bool(self._backup)

    def back_up(self) -> None:
        """Keep what the journal of the run has now, and what its checker knows."""
        self._backup.append((self.world.journal_store.copied(), self.world.backed_up()))

    def restore_backup(self) -> None:
        """The journal has what it had. All processes have ended, but for jobs on a cluster, which know no journal."""
        for process in self.alive():
            process.is_dead = process.is_dead or not process.name.startswith("job of")
        stored, checked = self._backup.pop()
        self.world.journal_store.bring_back(stored)
        self.world.bring_back(checked)
        self.begin_again()

    def begin_again(self) -> None:
        """The run was purged as far as it could be, and is made again: what was reported and promised is over."""
        self.world.lose_database()
        self.served = dict.fromkeys(self.served, 0)
        self.promised = dict.fromkeys(self.promised, 0)

    def recompute(self) -> None:
        """The whole run is cleared, and everything is to run again."""
        self._versions += 1
        self.world.epoch = f"epoch {self._versions}"
        for name in self.promised:
            self.was_promised(name, self.world.ledger.regions[name].latest_attempt)
        self.world.airflow.clear_all()
