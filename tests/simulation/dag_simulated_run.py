"""A simulated run of a job in its DAG, and what people can do to it besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_recovery.store.object_store import StoredObject
from airflow_recovery.testing.simulation.jobs import SimulatedJob
from airflow_recovery.testing.simulation.simulated_run import SimulatedRun
from simulation.dag_job import DagJob
from simulation.dag_settings import DagSettings, DagTrouble
from simulation.dag_world import DagWorld


@dataclass(frozen=True)
class Given:
    """What a reader outside the run was given, and how often something had happened to the run from outside by then."""

    region: str
    attempt: int
    happened: int


class DagSimulatedRun(SimulatedRun):
    """``followed``: what each branch follows when it runs.

    ``marked``: how somebody has marked tasks after the run was cleared for the last time. ``beside``: (DAG, region) of
    DAGs that Airflow has lost, where that region had committed before, so that it is no new name. ``unasked``: regions
    that have changed since a task has asked about their declaration: no task has to ask again. ``happened``: how often
    something has happened from outside; ``given``: what readers of other DAGs were given; ``withdrawn``: what people
    have taken from them.
    """

    world_type = DagWorld
    world: DagWorld
    settings: DagSettings

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        job = self.settings.job
        self.followed = {branch: frozenset(below[:1]) for branch, below in job.branches.items()}
        self.marked: Mapping[str, str] = {}
        self.beside: set[tuple[str, str]] = set()
        self.unasked: set[str] = set()
        self.happened = 0
        self.given: list[Given] = []
        self.withdrawn: set[tuple[str, int]] = set()
        for old, new in job.renamed.items():
            self.world.ledger.renamed |= {old: new, new: old}
        if job.renamed:
            self._plan_without(frozenset(job.renamed.values()))
        self._backup: list[tuple[dict[str, StoredObject], dict[str, Any]]] = []

    def is_disturbed(self, kind: object = None) -> None:
        """Count what happens from outside; a reader changes nothing."""
        if kind is not DagTrouble.READER:
            self.happened += 1

    def deploy(self, region: str, *, is_rollback: bool = False, end: str = "") -> None:
        """As of any run. ``end``: as `DagJob.with_code` has it."""
        self._change(region, lambda job: job.with_code(region, 0 if is_rollback else self._versions, end))
        self.world.airflow.clear_all()

    def deploy_alone(self, region: str, task: str, *, is_rollback: bool = False, is_text: bool = False) -> None:
        """As `deploy`, and ``task``, which is below, is cleared alone. ``is_text``: the code computes the same."""
        if is_text:
            self._change(region, lambda job: job.with_text(region, self._versions))
        else:
            self._change(region, lambda job: job.with_code(region, 0 if is_rollback else self._versions))
        self.world.airflow.clear(task)

    def _change(self, region: str, change: Callable[[DagJob], DagJob]) -> None:
        self._declares(region, lambda job: change(DagJob.of(job)))

    def _declares(self, region: str, change: Callable[[SimulatedJob], SimulatedJob]) -> None:
        keys = (info.key for info in self.world.journal_store.list(""))
        if any(f"/{region}/" in key and ".declared-" in key for key in keys):
            self.unasked.add(region)
        super()._declares(region, change)

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

    @property
    def removable(self) -> list[str]:
        """As of any run; a second name of a task is not added or removed like that."""
        return [name for name in super().removable if name not in self.settings.job.renamed.values()]

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
