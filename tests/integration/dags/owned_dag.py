"""DAGs of which several dates, or two DAGs, commit to one table (`integration_jobs/owned.py`)."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

START = datetime(2000, 1, 1, tzinfo=timezone.utc)

for dag_id, job in (
    ("owned_us", "by_run"),
    ("owned_de", "by_run"),
    ("owned_whole", "whole"),
    ("owned_newest", "newest"),
):
    # A schedule is for backfills; by itself nothing runs.
    with DAG(dag_id, schedule="@daily", start_date=START, catchup=False):
        SparkJobTaskGroup("g", job=f"integration_jobs.owned:{job}", conn_id="connect")
