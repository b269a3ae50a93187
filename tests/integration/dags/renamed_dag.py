"""The DAG that `test_owned_rows.py` gives another name."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("old_name", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.owned:added", conn_id="connect")
