"""`listening`: a DAG that an asset triggers."""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("listening", schedule=[Asset("spoken")]):
    SparkJobTaskGroup("g", job="integration_jobs.chain:chain", conn_id="connect")
