"""Delays of today's flights while they come in: a chain of three streaming regions, each a task of its own.

The job is plain PySpark (``jobs/live_flights.py``). A region that dies restarts alone, and what that loses is counted,
bounded, and checked by the last task, ``audit``, before anything is published.

``live_flights_regional`` is the same chain with another failover strategy: all regions start over where one dies. It is
there to compare the two (``make demo-approximate``).
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Asset, Param

from airflow_recovery import FailoverStrategy
from airflow_recovery.operators import SparkJobTaskGroup

SMALL_BATCHES = {
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "WARN",  # else a line or ten for every batch
}
PARAMS = {
    "lake": Param(
        os.environ.get("FLIGHTS_LAKE", "s3://lake/flights"), type="string", description="folder of the CSV files"
    ),
    "model_load_s": Param(8.0, type="number", minimum=0, description="seconds of the simulated model loading"),
}

STRATEGIES: dict[str, FailoverStrategy] = {
    "live_flights": FailoverStrategy.APPROXIMATE_SINGLE,
    "live_flights_regional": FailoverStrategy.REGION,
}

for dag_id, strategy in STRATEGIES.items():
    with DAG(
        dag_id=dag_id,
        schedule=None,
        start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
        params=PARAMS,
        max_active_runs=1,  # the three regions of a run need three slots at the same time
        tags=["airflow-recovery"],
        doc_md=__doc__,
    ) as dag:
        SparkJobTaskGroup(
            group_id="flights",
            job="jobs.live_flights:live_flights",
            conn_id="spark_default",
            conf=SMALL_BATCHES,
            failover_strategy=strategy,
            outlets=[Asset(dag_id)],
        )
