from __future__ import annotations

from datetime import datetime, timezone

from airflow.sdk import DAG, task

with DAG("daily", schedule="@daily", start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), catchup=False):

    @task
    def nothing() -> None:
        """Succeeds."""

    nothing()
