"""What `dags/wait_for_delays.py` waits for. Stands in for `dags/flights_delays.py`, which takes minutes."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

with DAG("flights_delays", schedule=None):
    SparkJobTaskGroup("flights", job="integration_jobs.delays:delays", conn_id="connect")
