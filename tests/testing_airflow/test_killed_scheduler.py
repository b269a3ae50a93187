"""What a scheduler does before it begins, in real Airflow.

A scheduler is killed and started again at once; its second look for orphans is an hour away.
That a first look without the wait finds nothing is shown in `tests/test_scheduler_start.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow


def test_a_task_has_what_the_scheduler_has_imported(airflow_without_backend: LocalAirflow) -> None:
    """Its DAG file imports nothing of this package. Without the import: `tests/task/test_preloading.py`."""
    out = Path(airflow_without_backend.env["CLEAR_CLIENTS_OUT"])
    out.mkdir(exist_ok=True)
    noted = out / "preloaded"
    noted.unlink(missing_ok=True)
    run_id = airflow_without_backend.trigger("lasting")
    airflow_without_backend.wait_until(noted.exists, "the task to note what it has")
    assert noted.read_text() == "True"
    airflow_without_backend.set_state("lasting", run_id, "last", "failed")


def test_its_tasks_are_run_again_within_seconds(airflow_without_backend: LocalAirflow) -> None:
    airflow = airflow_without_backend
    Path(airflow.env["CLEAR_CLIENTS_OUT"]).mkdir(exist_ok=True)
    run_id = airflow.trigger("lasting")
    airflow.wait_until(
        lambda: airflow.task_instance("lasting", run_id, "last")["state"] == "running", "the task to run"
    )
    airflow.kill_group("scheduler")
    airflow.start("scheduler")
    airflow.wait_until(lambda: len(airflow.tries("lasting", run_id, "last")) == 2, "a second try")
