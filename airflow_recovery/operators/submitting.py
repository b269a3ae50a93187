"""What our operators that submit to Spark add to the provider's `SparkSubmitOperator`."""

from __future__ import annotations

from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_recovery.checks import check_arguments
from airflow_recovery.driver.memory_policy import RaiseMemory
from airflow_recovery.operators.recovering import RecoveringOperator
from airflow_recovery.task.links import SparkHistoryLink


class SubmittingOperator(RecoveringOperator, SparkSubmitOperator):
    """A task that is one region, and a Spark application for each attempt.

    :param memory_policy: `RaiseMemory`, for the attempt after one that ran out of memory; spark-submit only.
    """

    operator_extra_links = (*RecoveringOperator.operator_extra_links, SparkHistoryLink())

    def __init__(self, *, memory_policy: RaiseMemory | None = None, **kwargs: Any) -> None:
        where = str(kwargs.get("task_id"))
        check_arguments(SubmittingOperator.__init__, locals(), where)
        of_submit: dict[str, object] = {name: kwargs[name] for name in ("conf", "conn_id") if name in kwargs}
        check_arguments(SparkSubmitOperator.__init__, of_submit, where, templated=self.template_fields)
        self.memory_policy = memory_policy
        super().__init__(**kwargs)
