"""DAGs for backfills: by logical date, and by partition key."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG, CronPartitionTimetable

from airflow_recovery.operators import SparkJobTaskGroup

START = datetime(2000, 1, 1, tzinfo=timezone.utc)

with DAG("forty", schedule="@daily", start_date=START, catchup=False):
    SparkJobTaskGroup("g", job="integration_jobs.forty:forty", conn_id="connect")

with DAG("by_partition", schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC"), start_date=START, catchup=False):
    SparkJobTaskGroup("g", job="integration_jobs.chain:chain", conn_id="connect")
