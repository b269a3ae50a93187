"""Airflow's plain Python task, in a file that imports nothing of this project."""

from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG, task

with DAG(dag_id="kept_plain", schedule=None, start_date=datetime(2012, 1, 1, tzinfo=timezone.utc)) as dag:

    @task
    def plain_python() -> dict[str, int]:
        return {"answer": 42}

    plain_python()
