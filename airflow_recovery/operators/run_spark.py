"""Setup and teardown of a run's own Spark, which all regions of a task group use (``spark="per-run"``)."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from airflow_recovery.operators.submitting import RETRIES, RETRY_DELAY, SubmittingOperator
from airflow_recovery.task.dag_operators import job_recovery_of
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import is_last_try, refuse_expand, refuse_mapped
from airflow_recovery.task.spark_connection import open_run_spark

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_recovery.task.open_run import RunPlace
    from airflow_recovery.task.run_spark import RunSpark

START_TASK = "start_spark"
STOP_TASK = "stop_spark"

log = logging.getLogger(__name__)


class StartSparkOperator(SubmittingOperator):
    """The setup task: the run's own Spark is there when it has succeeded, with all that it declares of spark-submit.

    Made by `SparkJobTaskGroup`. One that answers already is left as it is. Regions do the same where they find none, so
    that nothing needs this task's result.

    :param group_id: the full id of the task group, which is a part of the journal's identity.
    """

    def __init__(self, *, group_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group_id = group_id

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Start it. Returns its address, without its token."""
        from airflow_recovery.task.run_spark import StartServer

        with airflow_errors(is_last_try=is_last_try(context)):
            refuse_mapped(context)
            place, run_spark = _open(context, self, self.group_id, str(self._conn_id))
            os.environ.update(place.stores.driver_env())
            start = StartServer.of(self, context, self.group_id, place.settings.spark_idle_timeout_s)
            return {"server": run_spark.find_or_start(start).target}


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
        with airflow_errors(is_last_try=is_last_try(context)):
            _open(context, self, self.group_id, self.conn_id or "spark_default")[1].end()


def _open(context: Context, operator: BaseOperator, group_id: str, conn_id: str) -> tuple[RunPlace, RunSpark]:
    from airflow.sdk import BaseHook

    from airflow_recovery.task.open_run import RunPlace

    place = RunPlace.of(context, group_id, job_recovery_of(operator.get_dag(), group_id))
    return place, open_run_spark(BaseHook.get_connection(conn_id), place, place.identity)
