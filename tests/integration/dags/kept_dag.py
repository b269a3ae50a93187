"""`kept`: a result that the Connect server keeps."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("kept", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.kept:keeping", conn_id="connect")
