"""`pair`: its second region by spark-submit, so that there is a JVM to kill. The first one costs no JVM start."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("pair", schedule=None):
    group: Any = SparkJobTaskGroup("g", job="integration_jobs.pair:pair", conn_id="submit")
    group.children["g.made"]._conn_id = "connect"
