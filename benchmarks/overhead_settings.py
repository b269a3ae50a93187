"""What the DAGs of the overhead benchmarks share. Nothing of airflow_recovery: the plain ones must not import it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG

LAKE = os.environ.get("BENCHMARK_LAKE", "")
OUTPUT = os.environ.get("BENCHMARK_OUTPUT", "")
REGIONS: dict[str, list[str]] = json.loads(os.environ.get("BENCHMARK_REGIONS", "{}"))
"""The regions of the demo's job, each with those that it reads."""

SINCE = datetime(2012, 1, 1, tzinfo=timezone.utc)

CONF = {
    # A Connect server has its own. Nothing of the JVM, so that each operator starts it as it does by default.
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.showConsoleProgress": "false",
}


def plain_dag(dag_id: str, make: Callable[[str], Any]) -> DAG:
    """One task a region, made by ``make``, wired as the regions are."""
    with DAG(dag_id=dag_id, schedule=None, start_date=SINCE) as dag:
        tasks = {region: make(region) for region in REGIONS}
        for region, producers in REGIONS.items():
            for producer in producers:
                tasks[producer] >> tasks[region]
    return dag
