"""rows --> a sink, in four jobs: what each commit replaces in its table."""

from __future__ import annotations

import os
from typing import Any

from airflow_recovery import BLOCKING, job
from airflow_recovery.job import Job
from airflow_recovery.sinks import CommittingSink, DeltaTable, PostgresTable

LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")


def rows_of(spark: Any, day: str) -> Any:
    return spark.sql(f"SELECT '{day}' AS day")


def loading(name: str, sink: CommittingSink) -> Job:
    """One row, the run's day, committed to ``sink``."""
    found = job(name)
    found.source(name="rows", result=BLOCKING, params={"day": "{{ ds }}"})(rows_of)
    found.sink(name="load", inputs={"rows": "rows"}, commit=sink)(_as_they_are)
    return found


def _as_they_are(rows: Any) -> Any:
    return rows


by_run = loading("by_run", PostgresTable(conn_id="warehouse", table="sales", mode="replace", run_column="run_key"))
whole = loading("whole", DeltaTable(uri=f"{LAKE}/owned_whole", mode="replace"))
newest = loading("newest", DeltaTable(uri=f"{LAKE}/owned_newest", mode="replace", keeps="latest"))
added = loading("added", PostgresTable(conn_id="warehouse", table="sales", run_column="run_key"))
