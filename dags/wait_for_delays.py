"""A DAG that reads another DAG's result: a sensor waits for its publish, a hook gives the registered location."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from airflow.sdk import DAG, task

from airflow_recovery.sensors import RecoveryResultSensor

GROUP_ID = "flights"
VERTEX = "carrier_delays"

with DAG(
    dag_id="wait_for_delays",
    schedule="@daily",
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    published = RecoveryResultSensor(
        task_id="carrier_delays_published",
        external_dag_id="flights_delays",
        group_id=GROUP_ID,
        vertex=VERTEX,
        poke_interval=30,
        timeout=6 * 3600,
    )

    @task
    def where_is_it(logical_date: datetime | None = None) -> dict[str, Any]:
        # Asked here, not in the sensor: between the two the result may have been made again.
        from airflow_recovery.hooks import RecoveryResultHook

        hook = RecoveryResultHook()
        result = hook.get_result("flights_delays", VERTEX, group_id=GROUP_ID, logical_date=logical_date)
        return {"files": list(result.files), "rows": result.rows, "attempt": result.attempt}

    published >> where_is_it()
