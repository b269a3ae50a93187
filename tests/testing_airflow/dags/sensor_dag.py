"""Waits for a result of the DAG ``flights``, then asks where it is.

A run of ``flights`` ends as a file of the test says (folder CLEAR_CLIENTS_OUT). The test itself writes the journal.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

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

with DAG("flights", schedule=None, catchup=False):

    @task
    def work(run_id=None):
        end = Path(os.environ["CLEAR_CLIENTS_OUT"]) / f"{run_id}.end"
        while not end.exists():
            time.sleep(0.05)
        if end.read_text() == "failed":
            raise RuntimeError("as the test says")

    work()

with DAG("waits_in_its_own_run", schedule=None, catchup=False):
    RecoveryResultSensor(
        task_id="wait", external_dag_id="waits_in_its_own_run", group_id="group", vertex="delays", timeout=86400
    )

with DAG("takes_failed", schedule=None, catchup=False):
    RecoveryResultSensor(
        task_id="wait",
        external_dag_id="flights",
        group_id="group",
        vertex="delays",
        accept_failed=True,
        poke_interval=1,
        timeout=86400,
    )
