"""The demo's job with recovery: by spark-submit, and on a warm Spark Connect server."""

from __future__ import annotations

from airflow.sdk import DAG, Param

from airflow_recovery.operators import SparkJobTaskGroup
from benchmarks.overhead_settings import CONF, LAKE, SINCE

JOB = "benchmarks.whole_flights:flights"
params = {"lake": Param(f"file://{LAKE}", type="string")}

with DAG(dag_id="submit_recovering", schedule=None, start_date=SINCE, params=params):
    SparkJobTaskGroup(group_id="flights", job=JOB, conn_id="spark_default", conf=CONF)
with DAG(dag_id="connect_recovering", schedule=None, start_date=SINCE, params=params):
    SparkJobTaskGroup(group_id="flights", job=JOB, conn_id="spark_connect")
