"""``execution.batch.job-recovery.enabled: false``: plain Airflow, and no journal."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG, conf
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from paths import CODE
from tries import run_try, submissions

from airflow_recovery.driver.exit_report import write_failure
from airflow_recovery.errors import Failure, UserCodeError
from airflow_recovery.operators import RecoverableSparkSubmitOperator, SparkRegionOperator
from airflow_recovery.operators.publish import RecoveryPublishOperator
from airflow_recovery.operators.subtasks import RecoverySubtasksOperator
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy

OFF = {"execution.batch.job-recovery.enabled": False}


def tasks(job: str = "dagjobs.shapes:diamond", **given: Any) -> dict[str, Any]:
    return {task.task_id: task for task in job_dag(job, job_recovery=OFF, **given).tasks}


def lake(folder: Path) -> dict[str, Any]:
    (folder / "lake").mkdir()
    (folder / "lake" / "a.csv").write_text("1")
    return {"lake": str(folder / "lake")}


def test_every_try_runs_and_reads_what_the_last_one_of_its_run_has_made(recovery: Path, drivers: Drivers) -> None:
    found, params = tasks(), lake(recovery)
    for name in ("cleaned", "left", "right", "joined"):
        assert run_try(found[f"g.{name}"], params=params)["decision"] == "ran"
    (cleaned,) = drivers.specs[1].inputs
    assert cleaned.location == f"{drivers.specs[0].location}/cleaned"
    again = run_try(found["g.cleaned"], params=params, try_number=2)
    assert (again["decision"], again["why"], len(drivers.specs)) == ("ran", "recovery is off", 5)
    run_try(found["g.left"], params=params, try_number=2)
    (cleaned,) = drivers.specs[5].inputs
    assert cleaned.location == f"{drivers.specs[4].location}/cleaned"
    json.dumps(again)


def test_nothing_is_read_from_the_journal_or_written_to_it(recovery: Path, drivers: Drivers) -> None:
    found = tasks()
    run_try(found["g.aside"])
    assert run_try(found["g.publish"]) == {"publish": None, "regions": {}}
    assert not (recovery / "journal").exists()


def test_control_with_recovery_there_is_a_journal(recovery: Path, drivers: Drivers) -> None:
    run_try({task.task_id: task for task in job_dag("dagjobs.shapes:diamond").tasks}["g.aside"])
    assert (recovery / "journal").exists()


def test_two_tries_and_two_runs_write_to_different_places(recovery: Path, drivers: Drivers) -> None:
    found = tasks()
    for changes in cast(list[dict[str, Any]], [{}, {}, {"run_id": "other"}]):
        run_try(found["g.aside"], **changes)
    assert len({spec.location for spec in drivers.specs}) == 3
    assert all(spec.location.startswith(f"file://{recovery}/results/_plain/") for spec in drivers.specs)


def test_what_another_run_has_made_does_not_count(recovery: Path, drivers: Drivers) -> None:
    found, params = tasks(), lake(recovery)
    run_try(found["g.cleaned"], params=params)
    with fails_with("nothing-made-without-recovery", region="cleaned"):
        run_try(found["g.left"], params=params, run_id="other")


def test_airflows_retries_are_all_there_is() -> None:
    region = tasks()["g.aside"]
    assert isinstance(region, SparkRegionOperator)
    assert region.retries == conf.getint("core", "default_task_retries", fallback=0)
    assert not isinstance(region.retry_policy, RecoveryRetryPolicy)
    declared = tasks(retries=7, retry_delay=timedelta(seconds=3))["g.aside"]
    assert (declared.retries, declared.retry_delay) == (7, timedelta(seconds=3))


def test_a_failure_of_whatever_kind_is_retried_by_airflow_alone(recovery: Path, drivers: Drivers) -> None:
    def fail() -> None:
        write_failure(drivers.specs[-1], Failure("AnalysisException", "wrong column", sql_state="42703"))
        raise RuntimeError("Error code is: 1.")

    drivers.meanwhile = fail
    with fails_with("user-code-error") as error:
        run_try(tasks()["g.aside"])
    assert not isinstance(error.value, UserCodeError)
    assert isinstance(error.value.__cause__, UserCodeError)
    assert not list((recovery / "results").rglob("_failure.json"))


def test_a_driver_elsewhere_leaves_its_outcome_where_the_task_finds_it(recovery: Path, drivers: Drivers) -> None:
    """In cluster mode the receipt is on another machine."""
    real = drivers.run

    def run(spec: Any, folder: Path) -> None:
        real(spec, folder)
        Path(spec.receipt).unlink()

    drivers.run = run
    assert run_try(tasks()["g.aside"])["results"]["aside"]["rows"] == 0


def test_subtasks_are_decided_anew_every_time_and_handed_on(recovery: Path, drivers: Drivers) -> None:
    found, params = tasks("dagjobs.parallel:by_file"), lake(recovery)
    (decide,) = [each for each in found.values() if isinstance(each, RecoverySubtasksOperator)]
    assert run_try(decide, params=params) == ["a.csv"]
    (recovery / "lake" / "b.csv").write_text("2")
    assert run_try(decide, params=params) == ["a.csv", "b.csv"]
    assert not (recovery / "journal").exists()


def test_the_configuration_can_turn_it_off_for_all(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOB_RECOVERY_ENABLED", "False")
    run_try({task.task_id: task for task in job_dag("dagjobs.shapes:diamond").tasks}["g.aside"])
    assert not (recovery / "journal").exists()
    on = job_dag("dagjobs.shapes:diamond", job_recovery={"execution.batch.job-recovery.enabled": "true"})
    run_try({task.task_id: task for task in on.tasks}["g.aside"])
    assert (recovery / "journal").exists()


def operators(**given: Any) -> tuple[Any, Any]:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        one = RecoverableSparkSubmitOperator(
            task_id="one",
            application=str(CODE / "writer.py"),
            outputs=["rows"],
            application_args=["{output:rows}"],
            job_recovery=OFF,
        )
        two = RecoverableSparkSubmitOperator(
            task_id="two",
            application=str(CODE / "writer.py"),
            outputs=["rows"],
            inputs={"in": one.result("rows")},
            application_args=["{output:rows}", "{input:in}"],
            **given,
        )
        RecoveryPublishOperator(task_id="publish")
    return one, two


def test_a_drop_in_operator_only_has_its_placeholders_filled(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMIT_ONLY", "1")
    one, two = operators(job_recovery=OFF)
    for _ in range(2):
        assert run_try(one)["decision"] == "ran"
    run_try(two)
    first, second, third = (submission["arguments"] for submission in submissions(submitted))
    assert first != second
    assert third[1] == second[0]
    assert third[0].startswith(f"file://{recovery}/results/_plain/") or third[0].startswith(str(recovery))
    assert not (recovery / "journal").exists()


def test_recovery_on_for_one_operator_and_off_for_its_producer_is_refused() -> None:
    with fails_with("recovery-on-and-off", producer="one"):
        operators()


def test_a_shared_result_is_made_for_this_run_alone(recovery: Path, drivers: Drivers) -> None:
    tasks = {task.task_id: task for task in job_dag("dagjobs.sharing:sharing", job_recovery=OFF).tasks}
    for _ in range(2):
        assert run_try(tasks["g.airports"])["decision"] == "ran"
    assert all(spec.location.startswith(f"file://{recovery}/results/_plain/") for spec in drivers.specs)
    assert not (recovery / "journal").exists()


def test_the_number_of_an_attempt_is_that_of_its_try(recovery: Path, drivers: Drivers) -> None:
    for number in (1, 3):
        assert run_try(tasks()["g.aside"], try_number=number)["attempt"] == number
    assert [spec.attempt for spec in drivers.specs] == [1, 3]
