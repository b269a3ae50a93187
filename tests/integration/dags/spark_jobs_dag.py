"""The jobs of the integration tests, over Spark Connect."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, Asset, task

from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.sensors import RecoveryResultSensor

START = datetime(2000, 1, 1, tzinfo=timezone.utc)
"""Before every logical date of a test: Airflow makes no tasks for an earlier one."""

with DAG("diamond", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.diamond:diamond", conn_id="connect")

with DAG("levels", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.levels:levels", conn_id="connect")

with DAG("chain", schedule="@daily", start_date=START, catchup=False):
    SparkJobTaskGroup("g", job="integration_jobs.chain:chain", conn_id="connect", outlets=[Asset("chain-total")])

with DAG("branching", schedule=None):

    @task.branch
    def choose() -> str:
        return "g.left"

    # Airflow itself would skip `merged` with the default rule: here it has to find out by itself.
    group: Any = SparkJobTaskGroup(
        "g",
        job="integration_jobs.diamond:diamond",
        conn_id="connect",
        trigger_rule="none_failed_min_one_success",
    )
    choose() >> [group.children["g.left"], group.children["g.right"]]
    group.children["g.base"].trigger_rule = "all_success"

with DAG("waiting", schedule=None):
    RecoveryResultSensor(task_id="wait", external_dag_id="chain", group_id="g", vertex="total", poke_interval=1)
