"""The DAG of streaming regions, whose code `test_deploy_impact.py` changes under its runs."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("deployed_streams", schedule=None):
    group: Any = SparkJobTaskGroup("g", job="integration_jobs.deployed_streams:deployed_streams", conn_id="submit")
    group.children["g.report"]._conn_id = "connect"
