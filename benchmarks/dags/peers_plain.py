"""The pipeline of `benchmarks.peers` with Airflow's own operators and two retries, in a file without our imports."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from benchmarks.peers.flights.steps import APPLICATION, CONF, LAKE, OUTPUT, STEPS, arguments

lake = os.environ.get(LAKE, "")
output = f"{os.environ.get(OUTPUT, '')}/{{{{ ds }}}}"

with DAG("peers_plain", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)):
    tasks: dict[str, SparkSubmitOperator] = {}
    for step, reads in STEPS.items():
        tasks[step] = SparkSubmitOperator(
            task_id=step,
            application=APPLICATION,
            application_args=arguments(step, lake, {name: f"{output}/{name}" for name in reads}, f"{output}/{step}"),
            conf=CONF,
            retries=2,
            retry_delay=timedelta(seconds=1),
        )
        for name in reads:
            tasks[name] >> tasks[step]
