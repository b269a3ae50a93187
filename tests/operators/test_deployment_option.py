"""[recovery] deployment: whose the journal is (fault 82)."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import Drivers, job_dag
from tries import run_try

from airflow_recovery.operators import SparkRegionOperator


def aside() -> SparkRegionOperator:
    tasks = job_dag("dagjobs.shapes:diamond").tasks
    return next(each for each in tasks if isinstance(each, SparkRegionOperator) and each.region == "aside")


def test_fault_82_a_task_of_another_deployment_is_refused_before_it_looks_at_a_run(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "production")
    run_try(aside())
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "staging")
    with pytest.raises(AirflowFailException, match="found that of 'production'"):
        run_try(aside(), try_number=2)


def test_fault_82_control_without_names_another_deployment_adopts_what_is_there(
    recovery: Path, drivers: Drivers
) -> None:
    run_try(aside())
    assert run_try(aside(), try_number=2)["decision"] == "kept"
