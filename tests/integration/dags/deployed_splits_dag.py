"""The DAG of a job that commits split by split, whose code `test_deploy_impact.py` changes under its runs."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("deployed_splits", schedule=None):
    group: Any = SparkJobTaskGroup("g", job="integration_jobs.deployed_splits:deployed_splits", conn_id="submit")
    group.children["g.counted"]._conn_id = "connect"  # what reads splits can't run over Spark Connect
