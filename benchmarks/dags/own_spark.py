"""A small job twice: each region a Spark application, and all on a Spark of the run's own."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

for scope in ("per-region", "per-run"):
    with DAG(dag_id=f"small_{scope}", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)):
        SparkJobTaskGroup("job", job="benchmarks.small_job:small", spark=scope, conf={"spark.ui.enabled": "false"})
