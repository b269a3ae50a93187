"""The slow chain without recovery: one Python task a step, with one retry."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.sdk import DAG, BaseHook, task

OUTPUT = os.environ.get("BENCHMARK_OUTPUT", "")
STEPS = ("step_1", "step_2", "step_3", "step_4")

with DAG(dag_id="slow_plain", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)) as dag:

    @task(retries=1, retry_delay=timedelta(seconds=1))
    def run_step(step: str, output: str) -> None:
        from pyspark.sql import SparkSession

        from benchmarks.slow_chain import run_plain

        connection = BaseHook.get_connection("spark_connect")
        session = SparkSession.builder.remote(f"sc://{connection.host}:{connection.port}").create()
        try:
            run_plain(session, step, output)
        finally:
            session.stop()

    before = None
    for name in STEPS:
        this = run_step.override(task_id=name)(name, f"{OUTPUT}/{{{{ ds }}}}")
        if before is not None:
            before >> this
        before = this
