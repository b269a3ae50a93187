"""`airflow recovery doctor` as a task, on a worker of this Airflow."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators.doctor import RecoveryDoctorOperator

with DAG("doctor", schedule=None, catchup=False):
    RecoveryDoctorOperator(task_id="doctor", timeout_s=1800)
