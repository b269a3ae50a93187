"""`own_spark`: the job of `kept`, on a Spark of the run's own."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}

with DAG("own_spark", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.kept:keeping", conn_id="submit", spark="per-run", conf=SMALL)
