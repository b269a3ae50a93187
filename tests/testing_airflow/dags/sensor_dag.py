"""Waits for a result of the DAG ``flights``, then asks where it is."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task

from airflow_recovery.sensors import RecoveryResultSensor

with DAG("waits", schedule=None, catchup=False):
    wait = RecoveryResultSensor(
        task_id="wait", external_dag_id="flights", group_id="group", vertex="delays", poke_interval=1, timeout=86400
    )
    day_before = RecoveryResultSensor(
        task_id="day_before",
        external_dag_id="flights",
        group_id="group",
        vertex="delays",
        execution_delta=timedelta(days=1),
        deferrable=False,
        mode="poke",
        poke_interval=1,
        timeout=86400,
    )

    @task
    def where(logical_date=None):
        from airflow_recovery.hooks.result import RecoveryResultHook

        return (
            RecoveryResultHook().get_result("flights", "delays", group_id="group", logical_date=logical_date).location
        )

    [wait, day_before] >> where()
