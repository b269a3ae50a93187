"""`relay` over Connect but for one region by spark-submit, a JVM; with a sensor that is deferred until its end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.sensors import RecoveryResultSensor

RELAY = "relay_jobs.relay:relay"

with DAG("relay", schedule=None):
    group: Any = SparkJobTaskGroup("g", job=RELAY, conn_id="connect")
    group.children["g.b2"]._conn_id = "submit"
    RecoveryResultSensor(
        task_id="watch",
        external_dag_id="relay",
        group_id="g",
        vertex="total",
        poke_interval=1,
        retries=3,
        retry_delay=timedelta(seconds=1),
    )
