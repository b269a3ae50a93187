"""The rest of what `LocalAirflow` offers, and the sensor in a real triggerer."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from published import PublishedRun

from airflow_recovery.testing.local_airflow import LocalAirflow, LocalAirflowError

pytestmark = pytest.mark.airflow
ASK = {"clear_client": "open", "api_conn_id": "airflow_recovery_default"}


@pytest.fixture
def airflow(airflow_without_backend: LocalAirflow) -> LocalAirflow:
    return airflow_without_backend


def test_the_sensor_waits_in_the_triggerer(airflow: LocalAirflow) -> None:
    journal = airflow.home / "journal"
    PublishedRun(journal, date="2024-01-01T00:00:00+00:00").complete()
    run_id = airflow.trigger("waits", logical_date="2024-01-02T00:00:00+00:00")

    def state(task_id: str) -> str:
        return str(airflow.task_instance("waits", run_id, task_id)["state"])

    airflow.wait_until(lambda: state("wait") == "deferred" and state("day_before") == "success", "the sensors")
    assert state("where") != "success"

    PublishedRun(journal, date="2024-01-02T00:00:00+00:00").complete()
    assert airflow.wait_run("waits", run_id) == "success", airflow.log("waits", run_id, "wait", 1)
    assert airflow.xcom("waits", run_id, "where") == "file:///results/delays/1"
    assert "Published: attempt 1 in file:///results/delays/1" in airflow.log("waits", run_id, "wait", 1)


def test_a_killed_scheduler_is_started_again(airflow: LocalAirflow) -> None:
    airflow.kill("scheduler", signal.SIGKILL)
    run_id = airflow.trigger("clear_choice", conf=ASK)

    airflow.start("scheduler")

    assert airflow.wait_run("clear_choice", run_id) == "success"


def test_states_by_hand_and_tries(airflow: LocalAirflow) -> None:
    run_id = airflow.trigger("clear_choice", conf=ASK)
    assert airflow.wait_run("clear_choice", run_id) == "success"

    airflow.set_state("clear_choice", run_id, "ask", "failed")
    assert airflow.task_instance("clear_choice", run_id, "ask")["state"] == "failed"
    assert airflow.clear("clear_choice", run_id, only_failed=True) == ["ask"]
    assert airflow.wait_run("clear_choice", run_id) == "success"
    assert [task_try["try_number"] for task_try in airflow.tries("clear_choice", run_id, "ask")] == [1, 2]


def test_what_goes_wrong_is_told(airflow: LocalAirflow) -> None:
    with pytest.raises(LocalAirflowError, match="answered 404"):
        airflow.run_state("clear_choice", "no-such-run")
    with pytest.raises(LocalAirflowError, match="to be parsed"):
        airflow.wait_dag("no_such_dag", timeout_s=0.1)


def test_a_component_that_dies_shows_its_log(tmp_path: Path) -> None:
    airflow = LocalAirflow(tmp_path, tmp_path, env={"AIRFLOW__CORE__EXECUTOR": "no.such.Executor"})

    with pytest.raises(LocalAirflowError, match=r"(?s)scheduler ended with.*no\.such"), airflow:
        raise AssertionError("it did not start")
