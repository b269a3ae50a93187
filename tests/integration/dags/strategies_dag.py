"""`trio` under each of FLIP-1's failover strategies and recovery modes."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

TRIO: dict[str, Any] = {"group_id": "g", "job": "integration_jobs.trio:trio", "conn_id": "connect"}

with DAG("trio", schedule=None):
    SparkJobTaskGroup(**TRIO)

with DAG("full", schedule=None):
    SparkJobTaskGroup(**TRIO, failover_strategy="full")

with DAG("job_level", schedule=None):
    SparkJobTaskGroup(**TRIO, recovery_mode="JOB_LEVEL")

with DAG("individual", schedule=None):
    SparkJobTaskGroup(**{**TRIO, "job": "integration_jobs.trio:assumed"}, failover_strategy="individual")
