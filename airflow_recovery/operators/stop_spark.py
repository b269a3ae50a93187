"""The teardown task of a run's own Spark (``spark="per-run"``)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator, RetryPolicy

from airflow_recovery.checks import check_arguments
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators.recovering import retry_arguments
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import is_last_try, refuse_expand

if TYPE_CHECKING:
    from airflow.sdk import Context

STOP_TASK = "stop_spark"


class StopSparkOperator(BaseOperator):
    """The teardown task: the run's own Spark ends as soon as nobody is connected to it.

    Made by `SparkJobTaskGroup`; after the DAG's `RecoverableSparkSubmitOperator`s with ``spark="per-run"``, place one
    yourself: ``[report, summary] >> StopSparkOperator(task_id="stop_spark").as_teardown()``. Without it, their Spark
    ends when it has been idle for a while.

    :param group_id: the full id of the task group; of drop-ins, leave it out.
    :param conn_id: the connection of the group's regions.
    """

    def __init__(
        self,
        *,
        group_id: str = OPERATORS_GROUP,
        conn_id: str | None = None,
        retries: int | None = None,
        retry_delay: timedelta | float | None = None,
        retry_exponential_backoff: float | None = None,
        max_retry_delay: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        check_arguments(StopSparkOperator.__init__, locals(), str(kwargs.get("task_id")))
        of_retries = retry_arguments(retries, retry_delay, retry_exponential_backoff, max_retry_delay, retry_policy)
        super().__init__(**of_retries, **kwargs)
        self.group_id = group_id
        self.conn_id = conn_id

    @classmethod
    def partial(cls, **kwargs: Any) -> NoReturn:
        """Refused: a run has one Spark."""
        refuse_expand(cls.__name__, kwargs.get("task_id"))

    def execute(self, context: Context) -> None:
        """End it."""
        from airflow_recovery.task.run_spark import open_for_task

        with airflow_errors(is_last_try=is_last_try(context)):
            _, run_spark = open_for_task(context, self.get_dag(), self.group_id, self.conn_id or "spark_default")
            run_spark.end()
