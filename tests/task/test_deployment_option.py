"""[recovery] deployment: whose the journal is (faults 82 and 109); and whose the results are (fault 102)."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import run_try

from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.store.local import LocalStore
from airflow_recovery.task import open_run

LATER = datetime(2024, 1, 3, tzinfo=timezone.utc)


def aside() -> SparkRegionOperator:
    tasks = job_dag("dagjobs.shapes:diamond").tasks
    return next(task for task in tasks if isinstance(task, SparkRegionOperator) and task.region == "aside")


def test_fault_82_a_task_of_another_deployment_is_refused_before_it_looks_at_a_run(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "production")
    run_try(aside())
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "staging")
    with fails_with("journal-of-other-deployment", by=AirflowFailException, found="'production'"):
        run_try(aside(), try_number=2)


def test_fault_82_control_without_names_another_deployment_adopts_what_is_there(
    recovery: Path, drivers: Drivers
) -> None:
    run_try(aside())
    assert run_try(aside(), try_number=2)["decision"] == "kept"


def test_fault_109_a_deployment_without_a_name_adopts_nothing_of_one_that_has_one(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run and its plan are there: nothing is claimed, and all would be kept."""
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "production")
    run_try(aside())
    monkeypatch.delenv("AIRFLOW__RECOVERY__DEPLOYMENT")
    with fails_with(
        "journal-of-other-deployment",
        by=AirflowFailException,
        expected="a deployment without a name",
        found="'production'",
    ):
        run_try(aside(), try_number=2)


def test_fault_109_nor_one_that_has_a_name_of_one_without(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_try(aside())
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "staging")
    with fails_with(
        "journal-of-other-deployment",
        by=AirflowFailException,
        expected="deployment 'staging'",
        found="a deployment without a name",
    ):
        run_try(aside(), try_number=2)


def test_fault_109_control_where_only_names_are_looked_at_it_is_adopted(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__DEPLOYMENT", "production")
    run_try(aside())
    monkeypatch.delenv("AIRFLOW__RECOVERY__DEPLOYMENT")
    monkeypatch.setattr(open_run, "own_prefix", lambda *given, **named: None)
    assert run_try(aside(), try_number=2)["decision"] == "kept"


def test_fault_102_a_task_with_another_journal_is_refused_before_its_first_claim(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_try(aside())
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"file://{recovery}/other")
    with fails_with("results-of-other-journal", by=AirflowFailException):
        run_try(aside())
    assert [each.key for each in LocalStore(f"file://{recovery}/other").list() if "/t/" in each.key] == []
    assert len(drivers.specs) == 1


def test_fault_102_control_without_the_look_both_write_to_one_place(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_try(aside())
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"file://{recovery}/other")
    monkeypatch.setattr(open_run, "own_results", lambda *given, **named: None)
    assert run_try(aside())["decision"] == "ran"
    first, second = (spec.location.rpartition("/")[0] for spec in drivers.specs)
    assert first == second, "folders of attempts, of which neither journal knows those of the other"


def test_fault_102_a_deployment_of_the_version_before_goes_on(recovery: Path, drivers: Drivers) -> None:
    """Nothing says whose anything is: whoever comes first with a new run says it, once."""
    run_try(aside())
    journal, results = LocalStore(f"file://{recovery}/journal"), LocalStore(f"file://{recovery}/results")
    journal.delete(["_owner", "_journal"])
    results.delete(["_owner"])
    assert run_try(aside(), try_number=2)["decision"] == "kept"
    assert run_try(aside(), logical_date=LATER)["decision"] == "ran"
    assert results.get("_owner").body
    assert run_try(aside(), logical_date=LATER, try_number=2)["decision"] == "kept"
