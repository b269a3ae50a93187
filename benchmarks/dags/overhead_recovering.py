"""The demo's job with recovery, by spark-submit and on a warm Spark Connect server."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from airflow_recovery.operators import SparkJobTaskGroup
from benchmarks.overhead_settings import CONF, LAKE, SINCE


def recovering_dag(dag_id: str, conn_id: str, **arguments: Any) -> DAG:
    lake = Param(f"file://{LAKE}", type="string")
    with DAG(dag_id=dag_id, schedule=None, start_date=SINCE, params={"lake": lake}) as dag:
        SparkJobTaskGroup(group_id="flights", job="jobs.flights:flights", conn_id=conn_id, **arguments)
    return dag


submit = recovering_dag("submit_recovering", "spark_default", conf=CONF)
connect = recovering_dag("connect_recovering", "spark_connect")
