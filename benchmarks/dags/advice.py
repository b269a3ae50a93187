"""Airflow DAGs: pipelines that are cut as was advised, on a warm Spark Connect server."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

START = datetime(2012, 1, 1, tzinfo=timezone.utc)

with DAG(dag_id="advised", schedule=None, start_date=START):
    SparkJobTaskGroup(group_id="job", job="benchmarks.advised_chain:chain", conn_id="spark_connect")

with DAG(dag_id="advised_diamond", schedule=None, start_date=START):
    SparkJobTaskGroup(group_id="job", job="benchmarks.advised_diamond:diamond", conn_id="spark_connect")
