"""In real Airflow a scheduler is killed and started again at once; its second look for orphans is an hour away.

That a first look without the wait finds nothing is shown in `tests/test_scheduler_start.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow

NEXT_LOOK = {
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3600",
    # Longer than a scheduler takes to begin on a machine that is busy.
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
}


def test_its_tasks_are_run_again_within_seconds(launching: Callable[..., LocalAirflow], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with launching(tmp_path, recovery_backend=True, env=NEXT_LOOK) as airflow:
        run_id = airflow.trigger("lasting")
        airflow.wait_until(
            lambda: airflow.task_instance("lasting", run_id, "last")["state"] == "running", 60, "the task to run"
        )
        airflow.kill_group("scheduler")
        airflow.start("scheduler")
        airflow.wait_until(lambda: len(airflow.tries("lasting", run_id, "last")) == 2, 90, "a second try")
