"""The DAG whose code `test_deploy_impact.py` changes under its runs."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("deployed", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.deployed:deployed", conn_id="connect")
