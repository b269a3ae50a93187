"""The demo's job without recovery: a task a region, by spark-submit and over a warm Spark Connect server.

Nothing of this project is imported here: the regions and their producers come from the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, BaseHook, task
from overhead_settings import CONF

APPLICATION = os.path.join(os.path.dirname(__file__), os.pardir, "applications", "plain_region.py")
LAKE = os.environ.get("BENCHMARK_LAKE", "")
OUTPUT = os.environ.get("BENCHMARK_OUTPUT", "")
REGIONS: dict[str, list[str]] = json.loads(os.environ.get("BENCHMARK_REGIONS", "{}"))


@task
def run_over_connect(region: str, output: str) -> None:
    from pyspark.sql import SparkSession

    from benchmarks.plain import run_plain

    connection = BaseHook.get_connection("spark_connect")
    session = SparkSession.builder.remote(f"sc://{connection.host}:{connection.port}").create()
    try:
        run_plain(session, region, LAKE, output)
    finally:
        session.stop()


def over_connect(region: str) -> Any:
    return run_over_connect.override(task_id=region)(region, f"{OUTPUT}/connect/{{{{ ds }}}}")


def by_submit(region: str) -> Any:
    return SparkSubmitOperator(
        task_id=region,
        conn_id="spark_default",
        application=APPLICATION,
        application_args=[region, LAKE, f"{OUTPUT}/submit/{{{{ ds }}}}"],
        conf=CONF,
    )


def plain_dag(dag_id: str, make: Callable[[str], Any]) -> DAG:
    with DAG(dag_id=dag_id, schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)) as dag:
        tasks = {region: make(region) for region in REGIONS}
        for region, producers in REGIONS.items():
            for producer in producers:
                tasks[producer] >> tasks[region]
    return dag


submit = plain_dag("submit_plain", by_submit)
connect = plain_dag("connect_plain", over_connect)
