"""One region of a declared job, as one Airflow task and one Spark application."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.execution.region_task import RegionResult, RegionTask
from airflow_recovery.operators.applications import ConnectApplication, SubmittedApplication
from airflow_recovery.operators.failures import airflow_errors
from airflow_recovery.operators.run_context import recompute_epoch, run_facts, run_identity
from airflow_recovery.operators.summary import summary_of
from airflow_recovery.runtime.process import die_with_parent
from airflow_recovery.runtime.spec import RegionSpec
from airflow_recovery.runtime.submit import APPLICATION, QUIET_CONF, s3a_conf, submit_environment

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_recovery.job import Job
    from airflow_recovery.operators.region_runner import SparkApplication

log = logging.getLogger(__name__)

RETRIES = 3
RETRY_DELAY = timedelta(0)


class SparkRegionOperator(SparkSubmitOperator):
    """Runs one recovery region of a job, or keeps it, or wakes the producers of what it misses.

    Made by `SparkJobTaskGroup`; takes every argument of `SparkSubmitOperator` except those that name the application.
    The connection's type decides how the region runs: ``spark`` by spark-submit (any deploy mode of the provider's
    operator), ``spark_connect`` over a warm server.

    Every try begins with the same pre-check (PROTOCOL 5.1). What a try did is its return value: the decision, the
    attempt, why, and the Spark seconds saved; recovery itself reads only the journal.

    :param job: ``package.module:name`` of the job, importable on this worker.
    :param region: the region's name.
    :param group_id: the full id of the task group, which is a part of the journal's identity.
    """

    def __init__(
        self,
        *,
        job: str,
        region: str,
        group_id: str,
        retries: int | None = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.job = job
        self.region = region
        self.group_id = group_id
        self._application: SparkApplication | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """One try. Raises Airflow's fail and skip exceptions where a retry can't help."""
        with airflow_errors():
            result = self._execute(context)
        return summary_of(result)

    def on_kill(self) -> None:
        """Kill the Spark application, within Airflow's five seconds."""
        if self._application is not None:
            self._application.stop()

    def _execute(self, context: Context) -> RegionResult:
        from airflow_recovery.execution.job_plan import plan_job
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.operators.open_run import open_run
        from airflow_recovery.operators.region_runner import RegionRunner

        # A task whose supervisor is killed would run on, and a second attempt beside it.
        die_with_parent()
        job = load_job(self.job)
        regions = job.regions()
        facts = run_facts(context)
        identity = run_identity(context, self.group_id)
        plan = plan_job(job, self.job, facts)
        task_keys = {each.name: f"{self.group_id}.{each.name}" for each in regions.regions}
        with open_run(context, identity, plan.record, task_keys, log) as opened:
            os.environ.update(opened.stores.driver_env())
            self._application = self._make_application(job, context)
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

    def _make_application(self, job: Job, context: Context) -> SparkApplication:
        from airflow.sdk import BaseHook

        connection = BaseHook.get_connection(self._conn_id)
        if connection.conn_type == "spark_connect":
            from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

            url = SparkConnectHook(self._conn_id).get_connection_url()
            return ConnectApplication(url, connection.login or "airflow-recovery", job.packages, log)
        if connection.conn_type == "spark":
            deploy_mode = self._deploy_mode or connection.extra_dejson.get("deploy-mode")
            return SubmittedApplication(
                partial(self._submit, job, context, is_cluster=deploy_mode == "cluster"), self._kill
            )
        raise ConfigurationError(
            f"Connection {self._conn_id!r}: expected type spark (spark-submit) or spark_connect, found "
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
        if self.name == "arrow-spark":
            self.name = f"{spec.identity.dag_id}.{spec.region}@{spec.attempt}"
        # A key that outlives its attempt would hand the old attempt's job to the next one (AIRFLOW.md section 3).
        self.external_id_key = f"spark_job_id/{spec.attempt}"
        self._K8S_DRIVER_STATUS_KEY = f"k8s_driver_status/{spec.attempt}"
        self._hook = self._get_hook()
        super().execute(context)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # spark-submit dies with this process: its JVM would otherwise run on after kill -9.
        setattr(hook, "submit", partial(hook.submit, preexec_fn=die_with_parent))  # noqa: B010
        return hook

    def _kill(self) -> None:
        if self._hook is not None:
            super().on_kill()


def _joined(given: str | None, ours: str) -> str:
    return ours if not given else f"{given},{ours}"
