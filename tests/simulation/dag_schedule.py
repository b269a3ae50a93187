"""One schedule of a job in its DAG: its runs may end red, or skip tasks."""

from __future__ import annotations

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.errors import InputSkipped, OutputAltered, RecoveryError, kind_of
from airflow_recovery.testing.simulation.schedule import Report, Schedule
from airflow_recovery.testing.simulation.settings import Settings
from airflow_recovery.testing.simulation.sinks import STOPPED
from airflow_recovery.testing.simulation.strands import Process, current_runner
from simulation.dag_settings import DagSettings, DagTrouble
from simulation.dag_simulated_run import DagSimulatedRun
from simulation.dag_spark import SkipsItself
from simulation.dag_troubles import DagTroubles
from simulation.dag_verdict import check_decided_end, check_declared
from simulation.fake_table import TABLE
from simulation.readers import check_given
from simulation.shared_table import check_table, repair_table


class DagSchedule(Schedule, DagSimulatedRun):
    """Runs once. Everything that is random comes from ``rng``."""

    settings: DagSettings
    troubles_type = DagTroubles
    _troubles: DagTroubles

    def __init__(self, seed: int, settings: DagSettings) -> None:
        super().__init__(seed, settings)
        # It is compared with a fresh run once every task has looked at what is decided now.
        self._has_last_round |= self._is_decided
        self._begun_with: dict[str, object] = {}

    @property
    def _is_decided(self) -> bool:
        return self.world.main.job.is_decided

    @property
    def _is_at_rest(self) -> bool:
        """Every task is green; or has ended, of a run that may end otherwise."""
        airflow = self.world.airflow
        return (not airflow.ready() and airflow.has_ended) if self._is_decided else super()._is_at_rest

    def _is_repaired(self, task: str) -> bool:
        return task in self._stopped or not self._is_decided

    def _repair(self, task: str, error: RecoveryError) -> None:
        commit = self.world.job.regions[task].commit if task in self.world.job.regions else None
        if commit is not None and commit.sink == TABLE and not isinstance(error, OutputAltered):
            self.begins("USER", lambda: repair_table(self, task, str(error)))
        else:
            super()._repair(task, error)

    def _ends_early(self, stops: bool) -> bool:
        # What was decided before a run has ended makes no history.
        return stops and not self._is_decided

    def _check_at_rest(self) -> None:
        super()._check_at_rest()
        check_given(self, self.world.ledger.publishes)

    def _check_green(self) -> None:
        check_table(self)
        super()._check_green()

    def _check_end(self) -> None:
        if self._is_decided:
            check_decided_end(self)
        else:
            super()._check_end()

    def _begins_last_round(self) -> None:
        super()._begins_last_round()
        if self._is_decided:
            self.marked = self._troubles.mark_some()

    # processes

    def _try(self, own: TaskTry, process: Process) -> None:
        if own.task_id in self.followed:
            followed = self.followed[own.task_id]
            current_runner().switch(f"follows {', '.join(sorted(followed)) or 'none'}")
            self.world.airflow.end_branch(own, followed)
            return
        self._begun_with[own.ti_id] = self.world.job
        super()._try(own, process)

    def _has_failed(self, own: TaskTry, error: BaseException) -> None:
        if isinstance(error, (InputSkipped, SkipsItself)):
            current_runner().switch(f"reports a skip: {type(error).__name__}: {error}"[:200])
            self.world.airflow.end(own, "skipped")
        else:
            super()._has_failed(own, error)

    @property
    def _may_call_success(self) -> bool:
        return super()._may_call_success or DagTrouble.HAND in self.settings.troubles

    def _has_succeeded(self, own: TaskTry, attempt: int | None) -> None:
        if attempt is not None:
            self.served[own.task_id] = attempt
        if DagTrouble.ALONE in self.settings.troubles and self.world.job is self._begun_with[own.ti_id]:
            check_declared(self, own.task_id)
        super()._has_succeeded(own, attempt)

    def _fails_for_good(self, task: str, error: BaseException) -> None:
        """A job that is decided may stay so."""
        super()._fails_for_good(task, error)
        if not isinstance(error, STOPPED) and self._is_decided and kind_of(error).is_final:
            self.world.airflow.fail_for_good(task)


def simulate(seed: int, settings: Settings) -> Report:
    """One schedule, of a job in its DAG or of any other. Raises `Violation`."""
    schedule = DagSchedule(seed, settings) if isinstance(settings, DagSettings) else Schedule(seed, settings)
    return schedule.run()
