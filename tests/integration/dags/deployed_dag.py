"""The DAG whose code `test_deploy_impact.py` changes under its runs."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

START = datetime(2000, 1, 1, tzinfo=timezone.utc)

# A schedule is for backfills; by itself nothing runs.
with DAG("deployed", schedule="@daily", start_date=START, catchup=False):
    SparkJobTaskGroup("g", job="integration_jobs.deployed:deployed", conn_id="connect")
