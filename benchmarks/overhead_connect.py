"""The demo's job on one warm Spark Connect server, with recovery and without: no start of a JVM hides anything."""

from __future__ import annotations

import json
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from airflow_recovery.testing.spark_cluster import connect_server
from benchmarks.local_pipeline import open_local_pipeline
from benchmarks.overhead import lake_env, measure_overhead
from benchmarks.report import Report


def measure(folder: Path, repeats: int | None) -> Report:
    """``repeats`` (default 3) pairs of runs."""
    env = lake_env(folder)
    with connect_server(conf={"spark.sql.shuffle.partitions": "4"}) as server:
        connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
        jvm = psutil.Process(server.pid)

        def cpu_s() -> float:
            times = jvm.cpu_times()
            return float(times.user + times.system)

        with open_local_pipeline(
            folder / "pipeline", {**env, "AIRFLOW_CONN_SPARK_CONNECT": json.dumps(connection)}
        ) as pipeline:
            return measure_overhead(pipeline, "connect", repeats or 3, cpu_s, warm_up=True)
