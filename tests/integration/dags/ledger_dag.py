"""`ledger`: two sinks that commit to a database."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("ledger", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.ledger:ledger", conn_id="connect")
