"""What is harmed: regions at work on a warm Spark Connect server, and a task that is deferred for some seconds."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, NoReturn

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import DAG, BaseOperator

from airflow_recovery.operators import SparkJobTaskGroup

START = datetime(2012, 1, 1, tzinfo=timezone.utc)
DEFERRED_S = 20


class Wait(BaseOperator):
    """Waits in the triggerer."""

    def execute(self, context: Any) -> NoReturn:
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=DEFERRED_S)), method_name="done")

    def done(self, context: Any, event: Any) -> None:
        """The time has come."""


with DAG(dag_id="one_region", schedule=None, start_date=START) as one_region:
    SparkJobTaskGroup(group_id="job", job="benchmarks.slow_chain:single", conn_id="spark_connect")

with DAG(dag_id="long_region", schedule=None, start_date=START) as long_region:
    SparkJobTaskGroup(group_id="job", job="benchmarks.slow_chain:long", conn_id="spark_connect")

with DAG(dag_id="deferred", schedule=None, start_date=START) as deferred:
    Wait(task_id="wait")
