"""The demo's job without recovery: one Python task a region, on a warm Spark Connect server."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, BaseHook, task

from benchmarks.overhead_settings import LAKE, OUTPUT, plain_dag


@task
def run_region(region: str, output: str) -> None:
    from pyspark.sql import SparkSession

    from benchmarks.plain import run_plain

    connection = BaseHook.get_connection("spark_connect")
    session = SparkSession.builder.remote(f"sc://{connection.host}:{connection.port}").create()
    try:
        run_plain(session, region, LAKE, output)
    finally:
        session.stop()


def over_connect(region: str) -> Any:
    return run_region.override(task_id=region)(region, f"{OUTPUT}/connect/{{{{ ds }}}}")


dag: DAG = plain_dag("connect_plain", over_connect)
