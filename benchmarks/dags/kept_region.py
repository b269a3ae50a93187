"""One run makes the results; cleared again and again, its regions are kept."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG(dag_id="kept_region", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)) as dag:
    SparkJobTaskGroup(
        group_id="job",
        job="benchmarks.small_job:small",
        conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )
