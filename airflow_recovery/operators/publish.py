"""The last task of a job: publishes the coherent cut of its results. Asset outlets hang on it."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, TriggerRule

from airflow_recovery.operators.failures import airflow_errors
from airflow_recovery.operators.run_context import run_facts, run_identity

if TYPE_CHECKING:
    from airflow.sdk import Context

PUBLISH_TASK = "publish"

log = logging.getLogger(__name__)


class RecoveryPublishOperator(BaseOperator):
    """Names one coherent cut of a job's results for readers outside the run.

    `SparkJobTaskGroup` adds one by itself. A DAG of `RecoverableSparkSubmitOperator`s gets one by placing this operator
    after its last tasks, without ``job``. A result that does not stand any more wakes its producer, and this task
    retries. Publishing the same cut twice is one publish. Runs where some regions were skipped publish the others.

    :param job: ``package.module:name`` of the job, or `None` for the recoverable operators of the DAG.
    :param group_id: the full id of the task group, where there is one.
    """

    def __init__(
        self,
        *,
        job: str | None = None,
        group_id: str | None = None,
        retries: int | None = 3,
        retry_delay: timedelta | float = timedelta(0),
        trigger_rule: str = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, trigger_rule=trigger_rule, **kwargs)
        if (job is None) != (group_id is None):
            raise ValueError("expected job and group_id together (a declared job), or neither (the DAG's operators)")
        self.job = job
        self.group_id = group_id

    def execute(self, context: Context) -> dict[str, Any]:
        """One try. Returns the number of the publish and the attempts that it names."""
        from airflow_recovery.execution.publish import PublishTask
        from airflow_recovery.operators.open_run import open_run

        with airflow_errors():
            identity, plan, task_keys, on_altered = self._scope(context)
            with open_run(context, identity, plan, task_keys, log, on_altered=on_altered) as opened:
                publish = PublishTask(opened.run).execute()
        return {"publish": publish.number, "regions": {each.region: each.attempt for each in publish.regions}}

    def _scope(self, context: Context) -> Any:
        if self.job is None or self.group_id is None:
            from airflow_recovery.operators.dag_operators import OPERATORS_GROUP, on_altered_of, plan_of_dag

            plan = plan_of_dag(self.get_dag())
            keys = {each.name: each.name for each in plan.regions}
            return run_identity(context, OPERATORS_GROUP), plan, keys, on_altered_of(self.get_dag())
        from airflow_recovery.execution.job_plan import plan_job
        from airflow_recovery.job.loading import load_job

        plan = plan_job(load_job(self.job), self.job, run_facts(context)).record
        keys = {each.name: f"{self.group_id}.{each.name}" for each in plan.regions}
        return run_identity(context, self.group_id), plan, keys, None
