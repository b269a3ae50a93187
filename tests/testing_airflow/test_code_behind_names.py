"""Code behind a name that stays the same, in a real Airflow: deployed again, and cleared."""

from __future__ import annotations

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow

DAG, DATE = "unseen_code", "2024-05-01T00:00:00+00:00"
TASKS = ("run_on_clear", "keep")


@pytest.fixture
def airflow(airflow_without_backend: LocalAirflow) -> LocalAirflow:
    return airflow_without_backend


def deploy(airflow: LocalAirflow, rows: str) -> None:
    folder = airflow.home / "out" / "deployed"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "clean.sh").write_text(f"echo {rows}\n")


def rows(airflow: LocalAirflow, task_id: str) -> list[str]:
    """What each attempt has written."""
    folder = airflow.home / "journal" / "_results" / DAG / "date-2024-05-01T000000Z"
    return [path.read_text().strip() for path in sorted(folder.glob(f"*/{task_id}/*/rows/part-0"))]


def test_fault_280_a_deploy_under_the_same_name_and_a_clear_run_the_new_code(airflow: LocalAirflow) -> None:
    deploy(airflow, "old")
    run_id = airflow.trigger(DAG, logical_date=DATE)
    assert airflow.wait_run(DAG, run_id) == "success", airflow.describe(DAG, run_id)
    assert [rows(airflow, task) for task in TASKS] == [["old"], ["old"]]

    deploy(airflow, "new")
    airflow.clear(DAG, run_id)
    assert airflow.wait_run(DAG, run_id) == "success", airflow.describe(DAG, run_id)
    assert [rows(airflow, task) for task in TASKS] == [["old", "new"], ["old"]], "the second one is the control"
    log = airflow.log(DAG, run_id, "run_on_clear", 2)
    assert "run_on_clear: a change of this code can't be seen: file local:///clean.sh" in log
    assert "attempt 1 is older than the clear of this task" in log
    assert "keep is kept: attempt 1 is valid" in airflow.log(DAG, run_id, "keep", 2)
