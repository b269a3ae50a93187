"""The teardown task of a run's own Spark (``spark="per-run"``)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from airflow_recovery.operators.submitting import RETRIES, RETRY_DELAY
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import is_last_try, refuse_expand

if TYPE_CHECKING:
    from airflow.sdk import Context

STOP_TASK = "stop_spark"


class StopSparkOperator(BaseOperator):
    """The teardown task: the run's own Spark ends as soon as nobody is connected to it.

    :param group_id: the full id of the task group.
    :param conn_id: the connection of the group's regions.
    """

    def __init__(
        self,
        *,
        group_id: str,
        conn_id: str | None = None,
        retries: int | None = RETRIES,
        retry_delay: timedelta | float = RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
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
