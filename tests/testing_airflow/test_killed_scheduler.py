"""In real Airflow a scheduler is killed and started again at once; its second look for orphans is an hour away.

That a first look without the wait finds nothing is shown in `tests/test_scheduler_start.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow


def test_its_tasks_are_run_again_within_seconds(airflow_without_backend: LocalAirflow) -> None:
    airflow = airflow_without_backend
    Path(airflow.env["CLEAR_CLIENTS_OUT"]).mkdir(exist_ok=True)
    run_id = airflow.trigger("lasting")
    airflow.wait_until(
        lambda: airflow.task_instance("lasting", run_id, "last")["state"] == "running", 60, "the task to run"
    )
    airflow.kill_group("scheduler")
    airflow.start("scheduler")
    airflow.wait_until(lambda: len(airflow.tries("lasting", run_id, "last")) == 2, 90, "a second try")
