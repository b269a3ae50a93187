"""The job of `benchmarks.mtbf_job`, with an application for each region, and with one Spark for each run."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Param

from airflow_recovery import FixedDelay
from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.task.spark_connection import SparkScope

CONF = {"spark.sql.shuffle.partitions": "2"}
lake = Param(f"file://{os.environ.get('BENCHMARK_LAKE', '')}", type="string")

KINDS: dict[str, tuple[SparkScope, str]] = {
    "submit": ("per-region", "submitted"),
    "submit_warm_up": ("per-region", "warm_up"),
    "per_run": ("per-run", "per_run"),
    "per_run_warm_up": ("per-run", "warm_up"),
}

for kind, (scope, job) in KINDS.items():
    with DAG(
        f"mtbf_{kind}", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc), params={"lake": lake}
    ):
        SparkJobTaskGroup(
            group_id="year",
            job=f"benchmarks.mtbf_job:{job}",
            conf=CONF,
            spark=scope,
            # As Flink's benchmark has it: however often, and at once.
            restart_strategy=FixedDelay(attempts=1000, delay_s=0),
        )
