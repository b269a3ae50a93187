"""The negative control of `pair_dag`: spark-submit is not asked to die with its task."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.task import spark_submission

# Each DAG file is loaded in a process of its own, by the parser as by a task: nobody else meets this.
spark_submission.die_with_parent = lambda: None

# On a busy machine a heartbeat may come late.
PATIENT = {"execution.batch.job-recovery.previous-worker.recovery.timeout": "2 min"}

with DAG("unguarded", schedule=None):
    group: Any = SparkJobTaskGroup("g", job="integration_jobs.pair:pair", conn_id="submit", job_recovery=PATIENT)
    group.children["g.made"]._conn_id = "connect"
