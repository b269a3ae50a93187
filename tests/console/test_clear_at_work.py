"""What an applied plan clears in Airflow: by state, of those that it names and of those that are at work anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.console.in_airflow import AirflowDeployment
from airflow_recovery.hooks.settings import RecoverySettings

STATES = {"done": "success", "busy": "running", "new": None, "failed": "failed"}


class Hook:
    """The endpoint of an Airflow with one task in each state."""

    def __init__(self, conn_id: str) -> None:
        del conn_id

    def observe(self, dag_id: str, run_id: str) -> Observation:
        return Observation({key: TaskTry(key, -1, 1, f"ti-{key}", state) for key, state in STATES.items()})

    def clear(self, dag_id: str, run_id: str, request: ClearRequest) -> ClearResult:
        assert all(ti_id == f"ti-{key}" for key, ti_id in request.consumers.items())
        return ClearResult(tuple(request.consumers))


@pytest.mark.parametrize(
    ("named", "at_work", "cleared"),
    [
        (["done", "busy", "new"], [], ("busy", "done", "new")),
        (["done"], ["busy"], ("done",)),
        (["done"], ["failed"], ("done", "failed")),
        (["done"], ["new", "gone"], ("done",)),
    ],
    ids=["running ones too", "but not who works anyway", "unless it has ended", "nor what has not begun"],
)
def test_what_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], at_work: list[str], cleared: tuple[str, ...]
) -> None:
    monkeypatch.setattr("airflow_recovery.hooks.recovery_api.RecoveryApiHook", Hook)
    deployment = AirflowDeployment(RecoverySettings(f"file://{tmp_path}/j", f"file://{tmp_path}/r", api_conn_id="api"))
    assert deployment.clear("flights", "manual", named, unless_running=at_work) == cleared
