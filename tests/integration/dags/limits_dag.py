"""The diamond with a small restart budget."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("limited", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.diamond:diamond", conn_id="connect", maximum_per_task_failures=2)
