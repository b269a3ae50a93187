"""The demo's job with recovery, by spark-submit and over a warm Spark Connect server."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Param
from overhead_settings import CONF

from airflow_recovery.operators import SparkJobTaskGroup


def recovering_dag(dag_id: str, conn_id: str) -> DAG:
    with DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=datetime(2012, 1, 1, tzinfo=timezone.utc),
        params={"lake": Param(f"file://{os.environ.get('BENCHMARK_LAKE', '')}", type="string")},
    ) as dag:
        SparkJobTaskGroup(group_id="flights", job="jobs.flights:flights", conn_id=conn_id, conf=CONF)
    return dag


submit = recovering_dag("submit_recovering", "spark_default")
connect = recovering_dag("connect_recovering", "spark_connect")
