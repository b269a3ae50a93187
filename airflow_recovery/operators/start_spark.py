"""The setup task of a run's own Spark, which all regions of a task group use (``spark="per-run"``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_arguments
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators.submitting import SubmittingOperator
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.run_context import is_last_try, refuse_mapped

if TYPE_CHECKING:
    from airflow.sdk import Context

START_TASK = "start_spark"


class StartSparkOperator(SubmittingOperator):
    """The setup task: the run's own Spark is there when it has succeeded, with all that it declares of spark-submit.

    Made by `SparkJobTaskGroup`; before the DAG's `RecoverableSparkSubmitOperator`s with ``spark="per-run"``, place one
    yourself where its arguments are not those of whichever operator comes first. One that answers already is left as it
    is. Regions do the same where they find none, so that nothing needs this task's result.

    :param group_id: the full id of the task group, a part of the journal's identity; of drop-ins, leave it out.
    """

    def __init__(self, *, group_id: str = OPERATORS_GROUP, **kwargs: Any) -> None:
        check_arguments(StartSparkOperator.__init__, locals(), str(kwargs.get("task_id")))
        super().__init__(**kwargs)
        self.group_id = group_id

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Start it. Returns its address, without its token."""
        from airflow_recovery.task.run_spark import StartServer, open_for_task
        from airflow_recovery.task.spark_submission import connection_id

        with airflow_errors(is_last_try=is_last_try(context)):
            refuse_mapped(context)
            place, run_spark = open_for_task(context, self.get_dag(), self.group_id, connection_id(self))
            os.environ.update(place.stores.driver_env())
            start = StartServer.of(self, context, self.group_id, place.settings)
            return {"server": run_spark.find_or_start(start).target}
