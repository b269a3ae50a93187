"""An Airflow DAG: the chain that is cut as was advised, on a warm Spark Connect server."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG(dag_id="advised", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)) as dag:
    SparkJobTaskGroup(group_id="job", job="benchmarks.advised_chain:chain", conn_id="spark_connect")
