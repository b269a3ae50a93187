"""`snapshots`: an enumerator and a coordinator of the user's own, which go on where the ones before them were."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

# One task at a time: who is given what depends on who has finished.
with DAG("snapshots", schedule=None, max_active_tasks=1):
    SparkJobTaskGroup("g", job="integration_jobs.snapshots:snapshots", conn_id="connect")
