"""A job whose results are snapshots of an Iceberg and a Delta table (`jobs/flight_tables.py`), by spark-submit.

The connection `lake` has pyiceberg's properties of the catalog in its extra, and the catalog has the namespace
`flights`; the tables are made where there are none. Spark has Delta's jars and settings (docs/tables.md).
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG, Param

from airflow_recovery.operators import SparkJobTaskGroup

with DAG(
    dag_id="flight_tables",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    params={
        "lake": Param(os.environ.get("FLIGHTS_LAKE", "s3://lake/flights"), type="string"),
        "tables": Param(os.environ.get("FLIGHTS_TABLES", "s3://lake/tables"), type="string"),
    },
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    SparkJobTaskGroup(group_id="flights", job="jobs.flight_tables:flights", conf={"spark.sql.shuffle.partitions": "4"})
