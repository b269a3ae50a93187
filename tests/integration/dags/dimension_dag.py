"""Backfill dates that share one result."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("dimension", schedule="@daily", start_date=datetime(2000, 1, 1, tzinfo=timezone.utc), catchup=False):
    SparkJobTaskGroup("g", job="integration_jobs.dimension:dimension", conn_id="connect")
