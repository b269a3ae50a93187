"""`relay` over Connect, with a sensor that is deferred until its end; and with one region by spark-submit, a JVM."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.sensors import RecoveryResultSensor

RELAY = "relay_jobs.relay:relay"

with DAG("relay", schedule=None):
    SparkJobTaskGroup("g", job=RELAY, conn_id="connect")
    RecoveryResultSensor(
        task_id="watch",
        external_dag_id="relay",
        group_id="g",
        vertex="total",
        poke_interval=1,
        retries=3,
        retry_delay=timedelta(seconds=1),
    )

with DAG("relay_submit", schedule=None):
    group = SparkJobTaskGroup("g", job=RELAY, conn_id="connect")
    group.children["g.b2"]._conn_id = "submit"
