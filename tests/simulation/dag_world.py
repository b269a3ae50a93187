"""What a schedule of a job in its DAG moves through: a target of all runs, other DAGs, and what tasks render."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from airflow_recovery.attempt.run import DeclaredOperators
from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.sinks.committer import Committer
from airflow_recovery.testing.fake_sink import FakeTarget
from airflow_recovery.testing.simulation.dag_run import DagRun
from airflow_recovery.testing.simulation.folders import FolderSpark
from airflow_recovery.testing.simulation.jobs import IDENTITY, SimulatedJob
from airflow_recovery.testing.simulation.ledger import Ledger
from airflow_recovery.testing.simulation.memory import MemoryStore
from airflow_recovery.testing.simulation.spark import FakeSpark
from airflow_recovery.testing.simulation.strands import current_runner
from airflow_recovery.testing.simulation.world import World
from simulation.dag_job import DagJob
from simulation.dag_spark import DagSpark
from simulation.fake_table import TABLE, FakeTable
from simulation.run_of_dag import RunOfDag


class DagWorld(World):
    """``table``: one target of all runs; ``dags``: those that Airflow has."""

    main: RunOfDag

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.table = FakeTable(self.wrong)
        self.dags = {IDENTITY.dag_id}

    def _new_dag_run(
        self,
        name: str,
        job: SimulatedJob,
        identity: RunIdentity,
        ledger: Ledger,
        target: FakeTarget,
        store: MemoryStore,
    ) -> DagRun:
        return RunOfDag(name, DagJob.of(job), identity, ledger, target, store, self._publish_keys)

    def backed_up(self) -> dict[str, Any]:
        """What is known of the run by its journal."""
        return copy.deepcopy({**self.ledger.of_journal(), "history": self.history})

    def bring_back(self, known: dict[str, Any]) -> None:
        """Know of the run what a backup of its journal has."""
        self.main.history = known.pop("history")
        vars(self.ledger).update(known)

    def another_dag(self) -> DagRun:
        """A run of the same date of another DAG that is made as this one."""
        dag_id = f"{IDENTITY.dag_id} {len(self.others) + 2}"
        self.dags.add(dag_id)
        identity = RunIdentity(dag_id, IDENTITY.run_key, IDENTITY.group_id)
        ledger = self._new_ledger(self.job, identity)
        return self._joined(f"run of {dag_id}", identity, ledger, self._new_target(ledger), self.journal_store)

    def _followed_sinks(self, job: SimulatedJob) -> dict[str, CommitSpec]:
        return {name: spec for name, spec in super()._followed_sinks(job).items() if spec.sink != TABLE}

    def committer(self, dag_run: DagRun, spec: CommitSpec) -> Committer:
        """The way to the target of a sink, as a process goes it."""
        if spec.sink != TABLE:
            return super().committer(dag_run, spec)
        return self.table.committer(spec, lambda request: current_runner().switch(request))

    def _job_of(self, own: TaskTry, of: DagRun) -> DagJob:
        assert isinstance(of, RunOfDag)
        counted = of.xcoms_counted(own.task_id)
        xcoms = {name: xcom for name, xcom in of.airflow.xcoms.items() if counted.get(name, True)}
        return of.today.given(own.task_id, xcoms)

    def _more_of_run(self, of: DagRun, own: TaskTry, job: SimulatedJob) -> dict[str, Any]:
        assert isinstance(of, RunOfDag)
        assert isinstance(job, DagJob)
        return {
            "fingerprints": {name: job.regions[name].fingerprint or "" for name in job.operators & {own.task_id}},
            "declared": self._declared(of) if job.operators else None,
            "has_dag": lambda dag_id: dag_id in self.dags,
            "dag_run": of.in_run.facts(of.name) if job.dated or job.using else None,
            "xcoms_counted": of.xcoms_counted(own.task_id),
        }

    def _declared(self, dag_run: RunOfDag) -> DeclaredOperators:
        """What a process that begins now reads in the DAG's file, and what it finds there if it reads that again."""
        begun_with, worker = dag_run.job, f"worker {self._writers}"

        def read(job: DagJob, region: str, reading: str) -> str | None:
            declared = job.declares(region)
            if declared is None or region not in job.uneven | job.unsteady:
                return declared
            return f"{declared}, by {worker}{reading if region in job.unsteady else ''}"

        return DeclaredOperators(
            lambda region: read(begun_with, region, ""), lambda region: read(dag_run.job, region, " again")
        )

    def _kind_of_spark(self, job: SimulatedJob, region: str) -> type[FakeSpark]:
        return FolderSpark if region in job.folders else DagSpark

    def _prepare(self, spark: FakeSpark, of: DagRun, own: TaskTry) -> None:
        if isinstance(spark, DagSpark):
            spark.push = partial(of.airflow.push, own)
