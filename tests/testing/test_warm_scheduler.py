"""What a local Airflow's scheduler imports before it forks its tasks. Those of all tests with ``warm=`` run with it."""

from __future__ import annotations

import gc
from importlib.util import find_spec

import pytest

from airflow_recovery.testing.local_airflow.warm import OF_SESSIONS, OF_TASKS, local_settings


def test_the_scheduler_alone_imports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = local_settings(["json", "no_such_module"])
    monkeypatch.setattr("sys.argv", ["airflow", "triggerer"])
    exec(settings, {})
    monkeypatch.setattr("sys.argv", ["airflow", "scheduler", "--skip-serve-logs"])
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            exec(settings, {})
    finally:
        gc.enable()


def test_they_are_there() -> None:
    assert [name for name in (*OF_TASKS, *OF_SESSIONS) if find_spec(name) is None] == []
