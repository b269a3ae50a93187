"""A simulated run as people, sweepers and crashes meet it: what is there, what was told, and what they can do to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.testing.simulation.jobs import SimulatedJob
from airflow_recovery.testing.simulation.settings import Settings, Trouble
from airflow_recovery.testing.simulation.strands import Process, Strand, StrandRunner
from airflow_recovery.testing.simulation.world import World


class SimulatedRun:
    """The world of a run, its processes, and what was reported and promised. Who goes on next is asked of ``choose``.

    ``served``: the attempt of each region that its task reported last. ``promised``: attempts of each region up to this
    one do not count, as somebody was told. ``called_success``: tasks that a person has called a success.
    ``unseen_marks``: those of them that nobody has looked at since. ``hand``: who is at work where no process is.
    Everything that is random comes from ``rng``.
    """

    world_type: ClassVar[type[World]] = World

    def __init__(
        self, settings: Settings, rng: random.Random, choose: Callable[[Strand | None], Strand | None]
    ) -> None:
        self.settings = settings
        self.rng = rng
        self._runner = StrandRunner(choose)
        # A step is (process, request, is no zombie) until somebody reads it.
        self.trace: list[str | tuple[str, str, bool]] = []
        self.world = self.world_type(
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
        self.absent: frozenset[str] = frozenset()
        self._processes: list[Process] = self.world.cluster.processes
        self._versions = 0

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

    def is_disturbed(self, kind: object = None) -> None:
        """Called when something happens to the run from outside; a subclass may count it."""

    def mark(self, task: str, state: str) -> None:
        """By hand. Nobody has looked at what a person calls a success before a task begins that does."""
        self.world.airflow.mark(task, state)
        if state == "success":
            self.called_success.add(task)
            self.unseen_marks.add(task)

    def was_promised(self, region: str, attempt: int) -> None:
        """A restart was acknowledged: attempts up to this one do not count."""
        self.promised[region] = max(self.promised[region], attempt)

    def deploy(self, region: str, *, is_rollback: bool = False) -> None:
        """New code of ``region``, or that which it had in the beginning, and the whole run is cleared."""
        self._declares(region, lambda job: job.with_code(region, 0 if is_rollback else self._versions))
        self.world.airflow.clear_all()

    def _declares(self, region: str, change: Callable[[SimulatedJob], SimulatedJob]) -> None:
        self.is_redeployed = True
        self._versions += 1
        self.world.job = change(self.world.job)

    def has_other_code(self, region: str) -> bool:
        """Than in the beginning."""
        now = self.world.job.regions.get(region)
        return now is not None and now.fingerprint != self.settings.job.regions[region].fingerprint

    @property
    def removable(self) -> list[str]:
        """The regions that come and go, as subtasks of a source do: they read none."""
        whole = self.settings.job
        return [name for name, region in whole.regions.items() if not region.inputs and name not in whole.finals]

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
