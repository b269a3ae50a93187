"""The last task of a job: publishes the coherent cut of its results. Asset outlets hang on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, RetryPolicy, TriggerRule

from airflow_recovery.checks import check_arguments, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job import Job
from airflow_recovery.job.loading import job_reference
from airflow_recovery.operators.recovering import retry_arguments
from airflow_recovery.task.asset_events import ONCE, OnKeptAssets, mark_of_publish, send_events
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.links import RecoveryTabLink
from airflow_recovery.task.notes import leave_note, note_of_publish, noting_failure
from airflow_recovery.task.run_context import refuse_expand
from airflow_recovery.task.spark_connection import (
    PER_REGION,
    PER_RUN,
    SparkScope,
    cache_server,
    user_of,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from airflow_recovery.driver.cached import CacheServer
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.task.open_run import OpenRun
    from airflow_recovery.task.run_spark import RunSpark

PUBLISH_TASK = "publish"

log = logging.getLogger(__name__)


class RecoveryPublishOperator(BaseOperator):
    """Names one coherent cut of a job's results for readers outside the run.

    `SparkJobTaskGroup` adds one by itself. A DAG of `RecoverableSparkSubmitOperator`s gets one by placing this operator
    after its last tasks, without ``job``. If a result is not valid any more, its producer is cleared, and this task
    retries. It waits for tasks of the job that are at work, and uses no retry for that. Publishing the same cut twice
    is one publish. Runs where some regions were skipped publish the others.

    :param job: ``package.module:name`` of the job, or `None` for the recoverable operators of the DAG.
    :param group_id: the full id of the task group, where there is one.
    :param conn_id: the connection of the job's regions: its Spark Connect server is told to drop the run's cached
        results (``CACHED``). Asked for where the job has some.
    :param on_kept_assets: which events the assets in ``outlets`` get if this try publishes nothing new. ``"once"``:
        none if Airflow has this task's event of this run for that publish; ``"emit"``: one from each try that succeeds.
    :param spark: as the regions have it. The run's own Spark ends with all that it keeps.
    """

    publishes_results = True
    operator_extra_links = (RecoveryTabLink(),)

    def __init__(  # noqa: PLR0913 - Airflow's own arguments of retries are among them
        self,
        *,
        job: str | Job | None = None,
        group_id: str | None = None,
        conn_id: str | None = None,
        spark: SparkScope = PER_REGION,
        retries: int | None = None,
        retry_delay: timedelta | float | None = None,
        retry_exponential_backoff: float | None = None,
        max_retry_delay: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        trigger_rule: str = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        on_kept_assets: OnKeptAssets = ONCE,
        **kwargs: Any,
    ) -> None:
        check_arguments(RecoveryPublishOperator.__init__, locals(), str(kwargs.get("task_id")))
        of_retries = retry_arguments(retries, retry_delay, retry_exponential_backoff, max_retry_delay, retry_policy)
        super().__init__(**of_retries, trigger_rule=trigger_rule, **kwargs)
        if (job is None) != (group_id is None):
            raise JobDefinitionError(
                f"{self.task_id}: expected job and group_id together (a declared job), or neither (the DAG's "
                f"operators), found job={shown(job)} and group_id={group_id!r}: give both, or leave both out",
                code="job-without-group",
            )
        self.job = None if job is None else job_reference(job, self.task_id)
        self.group_id = group_id
        self.conn_id = conn_id
        self.spark = spark
        self.on_kept_assets = on_kept_assets
        self._run_spark: RunSpark | None = None
        self._keeps_cached_results = False

    @classmethod
    def partial(cls, **kwargs: Any) -> NoReturn:
        """Refused: the publishes of a run are one sequence."""
        refuse_expand(cls.__name__, kwargs.get("task_id"))

    def execute(self, context: Context) -> dict[str, Any]:
        """One try. Returns the number of the publish and the attempts that it names."""
        from airflow_recovery.task.dag_operators import drop_ins_of, recovers

        if self.group_id is None and not drop_ins_of(self.get_dag()):
            with airflow_errors():
                raise JobDefinitionError(
                    f"{self.task_id}: expected recoverable operators in this DAG, found none: there is nothing that it "
                    "could publish. A SparkJobTaskGroup has a publish task of its own: leave this one out",
                    code="nothing-to-publish",
                    task=self.task_id,
                )
        if not recovers(self.get_dag(), self.group_id):
            log.info("Recovery is off: nothing is published in the journal, and readers outside the run see nothing.")
            return {"publish": None, "regions": {}}
        with noting_failure(context), airflow_errors(), self._open(context) as opened:
            return self.publish(context, opened)

    def publish(self, context: Context, opened: OpenRun) -> dict[str, Any]:
        """Publish the present cut of the run, and let go of what nobody needs behind it."""
        from airflow_recovery.attempt.publish import PublishTask
        from airflow_recovery.attempt.release import drop_cached, release_published
        from airflow_recovery.hooks.tables import tables_of

        task = PublishTask(opened.run, below=self.get_flat_relative_ids())
        publish = task.execute()
        release_published(opened.run, opened.stores.results, opened.settings.retention, tables_of(opened.stores))
        if self._keeps_cached_results and self._run_spark is None:
            drop_cached(opened.run, self._server)
        leave_note(context, "; ".join([note_of_publish(publish), *self.more_to_note()]))
        asks_first = task.found_it and self.on_kept_assets == ONCE
        send_events(context, self, mark_of_publish(publish), asks_first=asks_first)
        return {"publish": publish.number, "regions": {region.region: region.attempt for region in publish.regions}}

    def more_to_note(self) -> list[str]:
        """What a subclass adds to the note on a publish: one text an entry."""
        return []

    @contextmanager
    def _open(self, context: Context) -> Iterator[OpenRun]:
        from airflow_recovery.model.job_recovery import DeclaredJobRecovery
        from airflow_recovery.task.open_run import RunPlace, open_run

        if self.job is None or self.group_id is None:
            from airflow_recovery.model.keys import OPERATORS_GROUP
            from airflow_recovery.task.dag_operators import on_altered_of, plan_of_dag
            from airflow_recovery.task.dag_read_again import declared_operators

            dag = self.get_dag()
            plan = plan_of_dag(dag)
            keys = {region.name: region.name for region in plan.regions}
            place = RunPlace.of(context, OPERATORS_GROUP, DeclaredJobRecovery(enabled=True), dag=dag)
            operators = declared_operators(dag)
            with open_run(context, place, plan, keys, log, on_altered=on_altered_of(dag), declared=operators) as opened:
                yield opened
            return
        from airflow_recovery.job.loading import load_job
        from airflow_recovery.task.job_run import open_job_run

        declared = load_job(self.job)
        self._keeps_cached_results = any(vertex.result.is_cached for vertex in declared.vertices.values())
        ask_cached = self._ask_cached
        with open_job_run(context, declared, self.job, self.group_id, self.get_dag(), log, ask_cached) as job:
            if self.spark == PER_RUN:
                from airflow_recovery.task.run_spark import open_run_spark

                self._run_spark = open_run_spark(self._connection, job.opened, job.identity)
            yield job.opened

    def _ask_cached(self, manifest: PartitionManifest) -> str | None:
        if self._run_spark is not None:
            return self._run_spark.ask_cached(manifest, user_of(self._connection))
        return self._server.ask(manifest)

    @cached_property
    def _connection(self) -> Connection:
        """Asked for once: each time is a request to the API server."""
        from airflow.sdk import BaseHook

        return BaseHook.get_connection(self.conn_id or "spark_default")

    @cached_property
    def _server(self) -> CacheServer:
        return cache_server(self._connection)
