"""One schedule: a run of the real protocol code in an order, and with troubles, that a seed decides."""

from __future__ import annotations

import random
from typing import ClassVar

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import (
    ConfigurationError,
    DriverLeft,
    InputPending,
    InputUnreachable,
    RecordInvalid,
    RecoveryError,
)
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.testing.fake_airflow import RESCHEDULED
from airflow_recovery.testing.simulation import neighbours
from airflow_recovery.testing.simulation.helper_threads import one_thread_at_a_time
from airflow_recovery.testing.simulation.jobs import IDENTITY, RANDOM
from airflow_recovery.testing.simulation.settings import Report, Settings, Trouble, Violation
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from airflow_recovery.testing.simulation.sinks import STOPPED, repair
from airflow_recovery.testing.simulation.strands import Process, Strand, Terminated, current_runner
from airflow_recovery.testing.simulation.troubles import PAUSED, Troubles
from airflow_recovery.testing.simulation.verdict import check_end, check_green, check_history

MAX_STEPS = 60_000
"""Runs that share results, each listing its journal by pages of two keys, have come to an end after 25,700."""
MAX_TRIES = 60
MAX_WAITS = 2000
TRACE_TAIL = 200
PREFIX = JournalLayout(IDENTITY).prefix
"""Left out where people read keys: there is one run."""
LAST_ROUND_SHARE = 0.5
"""Of the schedules: so many are cleared as a whole in the end, so that the next pre-checks evaluate what there is."""
MOST_UNDISTURBED_STEPS = 12
THAWED = 1.0
"""Whoever was frozen goes on at full speed."""


class Schedule(SimulatedRun):
    """Runs once. Everything that is random comes from ``rng``."""

    troubles_type: ClassVar[type[Troubles]] = Troubles

    def __init__(self, seed: int, settings: Settings) -> None:
        super().__init__(settings, random.Random(seed), self._choose)
        self.seed = seed
        self._stopped: dict[str, RecoveryError] = {}
        self._troubles = self.troubles_type(self, settings.troubles)
        self._steps = self._started = self._waits = 0
        self._is_last_round = False
        # What the sweeper does is in no stream, and who is told to end between a write and its event does not say it.
        unsaid = {Trouble.SWEEP, Trouble.PURGE, Trouble.RETURN, Trouble.SIGTERM, Trouble.RESIZE}
        self._is_history_whole = not unsaid & settings.troubles.keys() and settings.releases is None
        self._moment = self._undisturbed_steps = 0
        self._intrudes = self._is_untidy = False
        self._has_last_round = self.rng.random() < LAST_ROUND_SHARE
        # Some schedules let one process run for long, others change at every request.
        self._stickiness = self.rng.choice([0.0, 0.5, 0.8, 0.95])
        self._trouble_rate = self.rng.choice([0.005, 0.02, 0.1])
        self._intrusion_rate = self.rng.choice([0.0, 0.1, 0.4])
        self._eagerness = self.rng.choice([0.05, 0.4])

    def run(self) -> Report:
        """To its end. Raises `Violation`."""
        try:
            with one_thread_at_a_time(self.world.clock):
                self._runner.run()
        except Violation as violation:
            tail = "\n  ".join(self._trace_lines()[-TRACE_TAIL:])
            raise Violation(f"seed {self.seed}: {violation}\n{self.settings.text()}\n  {tail}") from None
        return Report(self.seed, self._steps, self._started, self._ran(), tuple(self._trace_lines()))

    def _ran(self) -> tuple[tuple[str, int], ...]:
        prefix = self.world.layout.prefix
        return tuple((region, attempt) for run, region, attempt in self.world.cluster.ran if run == prefix)

    def _trace_lines(self) -> list[str]:
        lines = (
            name if isinstance(name, str) else f"{'' if name[2] else 'zombie '}{name[0]}: {name[1]}"
            for name in self.trace
        )
        return [line.replace(PREFIX, "") for line in lines]

    # who goes on

    def _choose(self, last: Strand | None) -> Strand | None:
        self._steps += 1
        self.world.clock.now_s += 0.01
        moment = self.world.moment
        if moment != self._moment:
            # What goes wrong goes wrong around a write: anybody may come in then, for some steps.
            self._moment, self._intrudes = moment, self.rng.random() < self._intrusion_rate
        if self.world.wrong or self.world.cluster.wrong:
            raise Violation("; ".join([*self.world.wrong, *self.world.cluster.wrong]))
        if self._steps > MAX_STEPS:
            raise Violation(f"no end in {MAX_STEPS} steps")
        rng = self.rng
        if last is not None:
            if self._steps in self.settings.kills:
                self.note(f"KILL -9 {last.process.name}")
                last.process.is_dead = True
            self._is_untidy |= last.is_over
        if self._troubles.is_any_left and rng.random() < self._trouble_rate:
            self.note(self._troubles.happen())
            self._is_untidy = True
        if (
            last is not None
            and not last.is_over
            and last.can_go_on
            and last.wakes_at_s <= self.world.clock.now_s
            and not self._intrudes
            and (self._undisturbed_steps > 0 or rng.random() < self._stickiness * last.process.weight)
        ):
            self._undisturbed_steps -= 1
            return self._goes_on(last)
        while True:
            chosen = self._candidate()
            if chosen is not None:
                return self._goes_on(chosen)
            if not self._makes_progress():
                return None

    def _candidate(self) -> Strand | None:  # noqa: C901 - decisions in the order in which a seed is spent
        """One who can go on; perhaps a new try. `None` where there is nobody but, perhaps, zombies that stay away."""
        rng, airflow = self.rng, self.world.airflow
        if self._is_untidy:
            self._tidy()
        able = [
            strand
            for process in self._processes
            if not process.is_dead
            for strand in process.strands
            if strand.waits_for is None or strand.waits_for.is_over
        ]
        if not able or rng.random() < self._eagerness:
            ready = airflow.ready()
            # Before a task that waits looks again there is time for all others.
            acts = [task for task in ready if airflow.state(task) != RESCHEDULED]
            if not acts and self._notices(able):
                return self._candidate()
            if ready:
                return self._starts(rng.choice(acts or ready))
        if not able:
            return None
        if self._is_at_rest and self._only_zombies(able):
            # As often as not the next thing happens while the zombies sleep.
            if self._troubles.is_any_left:
                if rng.random() < 0.3:
                    self.note(self._troubles.happen())
                    self._is_untidy = True
                    return self._candidate()
            elif rng.random() < 0.2:
                return None
        if len(able) == 1:
            only = able[0]
            own = self.tries.get(only.process)
            if only.process.weight < THAWED and own is not None and self._troubles.gives_up_on(own):
                return self._candidate()
            return only
        if self._intrudes:
            self._intrudes = False
            self._undisturbed_steps = rng.randint(0, MOST_UNDISTURBED_STEPS)
            return rng.choice(able)
        now_s = self.world.clock.now_s
        weights = [strand.process.weight * (1.0 if strand.wakes_at_s <= now_s else 0.2) for strand in able]
        return rng.choices(able, weights)[0]

    def _goes_on(self, strand: Strand) -> Strand:
        self.world.clock.advance(strand.wakes_at_s)
        if strand.process.weight < THAWED:
            strand.process.weight = THAWED
        self.trace.append((strand.process.name, strand.request, self._is_present(strand.process)))
        return strand

    def _tidy(self) -> None:
        self._is_untidy = False
        for process in self._processes:
            if process.is_dead:
                # What it has written and not yet said, nobody says.
                self._is_history_whole = False
            if any(strand.is_done for strand in process.strands):
                process.strands = [strand for strand in process.strands if not strand.is_done]
        self._processes[:] = [process for process in self._processes if process.strands and not process.is_dead]

    def _notices(self, able: list[Strand]) -> bool:
        """Airflow finds out that the process of a running task is gone; a late write arrives."""
        airflow, rng = self.world.airflow, self.rng
        alive = {self.tries[process].ti_id for process in self.alive() if process in self.tries}
        for task in airflow.upstream:
            now = airflow.now(task)
            if now.state == "running" and now.ti_id not in alive:
                self.note(f"AIRFLOW notices that {task} try {now.try_number} is gone")
                airflow.lose_heartbeat(task)
                return True
            if now.state == "failed" and self._is_repaired(task) and (not able or rng.random() < 0.2):
                stopped = self._stopped.pop(task, None)
                if stopped is not None:
                    self.is_disturbed()
                    self._repair(task, stopped)
                    self._is_untidy = True
                    return True
                self.note(f"USER clears {task}, which was marked as failed")
                self.is_disturbed()
                airflow.clear(task, downstream=True)
                return True
        if self.world.network.in_flight and (not able or rng.random() < 0.1):
            self.note(
                f"a late PUT arrives: {self.world.network.arrive(rng.randrange(len(self.world.network.in_flight)))}"
            )
            return True
        for lake in self.world.tables.lakes if self.world.tables is not None else ():
            if lake.in_flight and (not able or rng.random() < 0.1):
                self.note(f"a late commit arrives: {lake.arrive(rng.randrange(len(lake.in_flight)))}")
                return True
        return False

    def _is_repaired(self, task: str) -> bool:
        """Whether a person does something about a task that has failed."""
        return True

    def _repair(self, task: str, error: RecoveryError) -> None:
        repair(self, task, error)

    def _makes_progress(self) -> bool:
        """Nobody can go on. Is there more to come? Raises `Violation` where the run is stuck, or green and wrong."""
        airflow = self.world.airflow
        if not self._is_at_rest:
            states = {task: airflow.state(task) for task in airflow.upstream}
            raise Violation(f"stuck: {states}")
        self._check_at_rest()
        if self._troubles.is_any_left and not self._is_last_round:
            stops = self.rng.random() < 0.5
            happened = None if self._ends_early(stops) else self._troubles.happen()
            if stops and happened is None:
                self._troubles.stop()
            else:
                self.note(happened)
                self._is_untidy = True
            return True
        if not self._is_last_round and self._has_last_round:
            self._begins_last_round()
            return True
        if self._is_last_round:
            self._check_end()
        return False

    def _ends_early(self, stops: bool) -> bool:
        """Whether nothing more happens to the run, although something might. ``stops`` was drawn."""
        return stops

    def _check_at_rest(self) -> None:
        if self.world.airflow.is_green:
            self._check_green()
        if self._is_history_whole and not self.alive():
            check_history(self)

    def _check_green(self) -> None:
        check_green(self)

    def _check_end(self) -> None:
        check_end(self)

    def _begins_last_round(self) -> None:
        """From now on nothing happens but that every task looks at what there is."""
        self._is_last_round = True
        self._is_untidy = True
        self._troubles.stop()
        for process in self._processes:
            process.is_dead = True
        self.world.network.in_flight.clear()
        for lake in self.world.tables.lakes if self.world.tables is not None else ():
            lake.in_flight.clear()
        self.is_disturbed()
        self.note("everybody who is left dies; all is cleared once more")
        self.world.airflow.clear_all()

    @property
    def _is_at_rest(self) -> bool:
        """Every task is green."""
        return self.world.airflow.is_green

    # processes

    def _starts(self, task: str) -> Strand:
        own = self.world.airflow.start(task)
        if own.try_number > MAX_TRIES:
            raise Violation(f"storm: {task} has more than {MAX_TRIES} tries")
        self._started += 1
        if task in self.served:
            self.unseen_marks.discard(task)
        else:
            self.unseen_marks.clear()  # the publish looks at all of them
        process = self.begins(f"{task} try {own.try_number}", lambda: self._try(own, process))
        process.weight = self.rng.choice([1.0, 1.0, 1.0, PAUSED])
        self.tries[process] = own
        return process.strands[0]

    def _try(self, own: TaskTry, process: Process) -> None:
        try:
            attempt = self.world.execute(own, process)
        except (Exception, Terminated, DriverLeft) as error:
            self._has_failed(own, error)
        else:
            current_runner().switch(f"reports success with {attempt or 'a publish'}")
            if self.world.airflow.end(own, "success"):
                self._has_succeeded(own, attempt)

    def _has_failed(self, own: TaskTry, error: BaseException) -> None:
        task, airflow = own.task_id, self.world.airflow
        if isinstance(error, InputUnreachable):
            if not self._may_call_success:
                raise Violation(f"{task}: {error}") from error
            # Somebody has called the lost producer a success, before it looked. The message says to clear it.
            current_runner().switch("reports failure: InputUnreachable")
            if airflow.end(own, "failed"):
                self.note("USER clears all")
                airflow.clear_all()
        elif isinstance(error, InputPending):
            current_runner().switch(f"waits: {error}"[:200])
            self._waits += 1
            if self._waits > MAX_WAITS:
                raise Violation(f"storm: {task} waits without end") from error
            airflow.reschedule(own)
        elif isinstance(error, (RecoveryError, Terminated, DriverLeft)):
            current_runner().switch(f"reports failure: {type(error).__name__}: {error}"[:200])
            self._does_what_it_says(error)
            if airflow.end(own, "failed"):
                self._fails_for_good(task, error)
        else:
            raise Violation(f"{task} raises {error!r}") from error

    @property
    def _may_call_success(self) -> bool:
        """Whether somebody may call a task a success."""
        return Trouble.MARK in self.settings.troubles

    def _has_succeeded(self, own: TaskTry, attempt: int | None) -> None:
        if attempt is not None:
            self.served[own.task_id] = attempt
        if self.world.airflow.is_green:
            self._check_green()

    def _fails_for_good(self, task: str, error: BaseException) -> None:
        """Not if a retry may help. A person mends what is wrong."""
        if isinstance(error, STOPPED):
            self._stopped[task] = error
            self.world.airflow.fail_for_good(task)

    def _does_what_it_says(self, error: BaseException) -> None:
        """An administrator, of what concerns the whole deployment."""
        if isinstance(error, RecordInvalid) and Trouble.VERSION in self.settings.troubles:
            self.note("ADMINISTRATOR upgrades this package")
            self.world.is_upgraded = True
        if isinstance(error, ConfigurationError) and Trouble.DEPLOYMENT in self.settings.troubles:
            neighbours.ends_other_deployment(self)

    def _is_present(self, process: Process) -> bool:
        own = self.tries.get(process)
        return own is None or self.world.airflow.is_mine(own)

    def _only_zombies(self, able: list[Strand]) -> bool:
        return all(strand.process in self.tries and not self._is_present(strand.process) for strand in able)


def simulate(seed: int, settings: Settings | None = None, *, topology: str = RANDOM) -> Report:
    """One schedule. Raises `Violation`."""
    return Schedule(seed, settings or Settings.drawn(seed, topology)).run()
