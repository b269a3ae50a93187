"""One region of a declared job, as one Airflow task and one Spark application."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.execution.region_task import RegionResult, RegionTask
from airflow_recovery.operators.applications import ConnectApplication, SubmittedApplication
from airflow_recovery.operators.run_context import recompute_epoch, refuse_mapped, run_facts, run_identity
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.operators.supervision import die_with_supervisor
from airflow_recovery.runtime.spec import RegionSpec
from airflow_recovery.runtime.submit import APPLICATION, QUIET_CONF, s3a_conf, submit_environment

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.job import Job
    from airflow_recovery.operators.region_runner import SparkApplication
    from airflow_recovery.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

CONNECT = "spark_connect"
SUBMIT = ("spark", "k8s", "local", "mesos", "yarn")
"""Connection types that the provider's hook submits to: a connection given as a URI has the master's scheme as type."""

_PROVIDERS_DEFAULT_NAME = "arrow-spark"


class SparkRegionOperator(SubmittingOperator):
    """Runs one recovery region of a job, or keeps it, or wakes the producers of what it misses.

    Made by `SparkJobTaskGroup`; takes every argument of `SparkSubmitOperator` except those that name the application.
    The connection's type decides how the region runs: ``spark`` by spark-submit (any deploy mode of the provider's
    operator), ``spark_connect`` over a warm server. Over Connect, ``conf`` is set in the attempt's session as far as a
    running server lets it be set; the other arguments of spark-submit have no meaning there.

    Every try begins with the same pre-check (PROTOCOL 5.1). What a try did is its return value: the decision, the
    attempt, why, and the Spark seconds saved; recovery itself reads only the journal.

    :param job: ``package.module:name`` of the job, importable on this worker.
    :param region: the region's name.
    :param group_id: the full id of the task group, which is a part of the journal's identity.
    """

    def __init__(self, *, job: str, region: str, group_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.region = region
        self.group_id = group_id
        self._application: SparkApplication | None = None

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds."""
        if self._application is not None:
            self._application.stop()

    def execute_region(self, context: Context) -> RegionResult:
        """One try: plan the job, open the run, and go through the protocol. Raises our own errors."""
        from airflow_recovery.execution.job_plan import plan_job
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.operators.dag_operators import publish_tasks_of
        from airflow_recovery.operators.open_run import open_run
        from airflow_recovery.operators.region_runner import RegionRunner

        refuse_mapped(context)
        die_with_supervisor()
        job = load_job(self.job)
        regions = job.regions()
        facts = run_facts(context)
        identity = run_identity(context, self.group_id)
        plan = plan_job(job, self.job, facts)
        task_keys = {each.name: f"{self.group_id}.{each.name}" for each in regions.regions}
        publishes = publish_tasks_of(self.get_dag(), self.group_id)
        with open_run(context, identity, plan.record, task_keys, log, publish_keys=publishes) as opened:
            os.environ.update(opened.stores.driver_env())
            self._application = self._make_application(job, context, opened.stores.journal)
            runner = RegionRunner(
                job=job,
                ref=self.job,
                region=regions.region(self.region),
                plan=plan,
                facts=facts,
                identity=identity,
                stores=opened.stores,
                application=self._application,
                log=log,
            )
            task = RegionTask(
                opened.run,
                self.region,
                runner,
                epoch=recompute_epoch(context),
                prepare_journal=opened.prepare_journal,
            )
            return task.execute()

    def _make_application(self, job: Job, context: Context, journal: ObjectStore) -> SparkApplication:
        from airflow.sdk import BaseHook

        connection = BaseHook.get_connection(self._conn_id)
        if connection.conn_type == CONNECT:
            from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

            return ConnectApplication(
                SparkConnectHook(self._conn_id).get_connection_url(),
                user_id=connection.login or "airflow-recovery",
                packages=job.packages,
                conf={str(key): str(value) for key, value in (self.conf or {}).items()},
                journal=journal,
                log=log,
            )
        if connection.conn_type in SUBMIT:
            deploy_mode = self._deploy_mode or connection.extra_dejson.get("deploy-mode")
            submit = partial(self._submit, job, context, is_cluster=deploy_mode == "cluster")
            return SubmittedApplication(submit, self.kill_attempt)
        raise ConfigurationError(
            f"Connection {self._conn_id!r}: expected type spark (spark-submit) or {CONNECT}, found "
            f"{connection.conn_type!r}. Give the task group a conn_id of one of these types."
        )

    def _submit(self, job: Job, context: Context, spec: RegionSpec, path: Path, *, is_cluster: bool) -> None:
        from airflow_recovery.runtime.shipping import build_archive

        os.environ.update(submit_environment(os.environ))
        conf = dict(QUIET_CONF)
        for store in (spec.results, spec.journal):
            conf |= s3a_conf(store, os.environ)
        conf |= self.conf or {}
        conf |= job.region_spark_conf(self.region)
        self.conf = conf
        self.application = APPLICATION
        self.application_args = [str(path)]
        self.py_files = _joined(self.py_files, str(build_archive(self.job, job.packages)))
        if is_cluster:
            self.files = _joined(self.files, str(path))
        if self.name == _PROVIDERS_DEFAULT_NAME:
            self.name = f"{spec.identity.dag_id}.{spec.region}@{spec.attempt}"
        self.submit_attempt(context, spec.attempt)


def _joined(given: str | None, ours: str) -> str:
    return ours if not given else f"{given},{ours}"
