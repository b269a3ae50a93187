"""A region whose sink commits, as a task: what it commits, and what Airflow is told where it can't."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import run_try

from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.errors import ConfigurationError, SinkNotApplied
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.store.local import LocalStore

KEY = "date-2024-01-02T000000Z"


@pytest.fixture
def target(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    path = recovery / "target"
    monkeypatch.setenv("COMMITTING_TARGET", str(path))
    return path


def task(**given: Any) -> SparkRegionOperator:
    (operator,) = [
        task
        for task in job_dag("dagjobs.committing:committing", **given).tasks
        if isinstance(task, SparkRegionOperator)
    ]
    return operator


def a_try(target: Path, number: int = 1, **given: Any) -> Any:
    params = {"lake": str(target.parent / "lake")}
    return run_try(task(**given), params=params, try_number=number)


def journal(target: Path, key: str) -> Journal:
    return Journal(LocalStore(f"file://{target.parent}/journal"), RunIdentity("d", key, "g"), writer="test")


def run_key(target: Path) -> str:
    return next((target.parent / "journal" / "d").iterdir()).name


def test_a_try_commits_before_it_succeeds_and_the_next_one_keeps_it(target: Path, drivers: Drivers) -> None:
    assert a_try(target)["decision"] == "ran"
    (line,) = target.read_text().splitlines()
    assert line.startswith("delays@1 of d / ")
    assert line.endswith(" delays")
    assert a_try(target, 2)["decision"] == "kept"
    assert len(target.read_text().splitlines()) == len(drivers.specs) == 1


def test_what_was_certainly_not_done_is_done_by_the_next_try_without_spark(target: Path, drivers: Drivers) -> None:
    target.with_suffix(".refuses").touch()
    with pytest.raises(SinkNotApplied, match="closed"):
        a_try(target)
    target.with_suffix(".refuses").unlink()
    assert a_try(target, 2)["decision"] == "kept"
    assert len(target.read_text().splitlines()) == len(drivers.specs) == 1


def test_in_doubt_fails_without_a_retry_until_a_person_confirms(target: Path, drivers: Drivers) -> None:
    target.with_suffix(".breaks").touch()
    with fails_with("sink-never-answers"):
        a_try(target)
    target.with_suffix(".breaks").unlink()
    with fails_with("writer-may-commit", by=AirflowFailException):
        a_try(target, 2)
    assert not target.exists()
    found = journal(target, run_key(target))
    confirm_dead(found, found.load(found.list(["delays"])), "delays", "ann", "looked")
    assert a_try(target, 3)["decision"] == "kept"
    assert len(target.read_text().splitlines()) == len(drivers.specs) == 1


def test_without_recovery_such_a_sink_is_refused(target: Path, drivers: Drivers) -> None:
    with fails_with("commit-without-recovery", by=(ConfigurationError, AirflowFailException)):
        a_try(target, job_recovery={"execution.batch.job-recovery.enabled": False})
