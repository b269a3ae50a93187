"""The rest of what `LocalAirflow` offers, and the sensor in a real triggerer."""

from __future__ import annotations

import signal
from pathlib import Path
from urllib.parse import quote

import pytest
from published import PublishedRun

from airflow_recovery.model.inputs import InputRef
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


def test_fault_200_the_sensor_waits_while_the_run_may_publish_again(airflow: LocalAirflow) -> None:
    """Published, and then: cleared and running, failed, repaired; at last Airflow does not have the run."""
    date = "2024-02-01T00:00:00+00:00"
    flights, end = airflow.trigger("flights", logical_date=date), airflow.home / "out" / f"local__{date}.end"
    end.parent.mkdir(parents=True, exist_ok=True)
    published = PublishedRun(airflow.home / "journal", date=date)
    published.complete()
    waiting = airflow.trigger("waits", logical_date=date)

    def state(task_id: str, dag_id: str = "waits", run_id: str = waiting) -> str:
        return str(airflow.task_instance(dag_id, run_id, task_id)["state"])

    def not_yet(words: str, try_number: int = 1) -> None:
        airflow.wait_until(lambda: state("wait") == "deferred", "the sensor to be deferred")
        airflow.wait_until(lambda: words in airflow.log("waits", waiting, "wait", try_number), words)
        assert state("wait") == "deferred"

    not_yet("is queued or running, so that it may be replaced")
    end.write_text("failed")
    assert airflow.wait_run("flights", flights) == "failed"
    not_yet("has failed since, or was marked failed")
    taking = airflow.trigger("takes_failed", logical_date=date)
    assert airflow.wait_run("takes_failed", taking) == "success", airflow.log("takes_failed", taking, "wait", 1)

    published.finish("by_route", 2)
    published.finish("delays", 2, InputRef("by_route", 2))
    published.publish(2, 2, 2)
    end.unlink()
    airflow.clear("flights", flights)
    airflow.wait_until(lambda: state("work", "flights", flights) == "running", "the cleared run to run")
    assert state("wait") == "deferred"
    end.write_text("success")
    airflow.wait_until(
        lambda: state("wait") == "success", "the sensor", lambda: airflow.log("waits", waiting, "wait", 1)
    )
    assert "Published: attempt 2" in airflow.log("waits", waiting, "wait", 1)

    assert airflow.wait_run("flights", flights) == "success"
    airflow.api("PATCH", f"/dags/flights/dagRuns/{quote(flights)}", {"state": "failed"})
    airflow.clear("waits", waiting, ["wait"])
    not_yet("has failed since, or was marked failed", 2)
    airflow.api("DELETE", f"/dags/flights/dagRuns/{quote(flights)}")
    airflow.wait_until(
        lambda: state("wait") == "success", "the sensor", lambda: airflow.log("waits", waiting, "wait", 2)
    )
    PublishedRun(airflow.home / "journal", date="2024-01-31T00:00:00+00:00").complete()  # for `day_before`
    assert airflow.wait_run("waits", waiting) == "success"
    assert airflow.xcom("waits", waiting, "where") == "file:///results/delays/2"


def test_fault_202_a_sensor_in_a_run_without_a_logical_date_fails_by_name(airflow: LocalAirflow) -> None:
    waiting = airflow.trigger("takes_failed")
    assert airflow.wait_run("takes_failed", waiting) == "failed"
    log = airflow.log("takes_failed", waiting, "wait", 1)
    assert "expected logical_date= of the run of 'flights' that is waited for" in log
    assert "UndefinedError" not in log


def test_a_sensor_does_not_wait_for_the_end_of_its_own_run(airflow: LocalAirflow) -> None:
    date = "2024-03-01T00:00:00+00:00"
    own = PublishedRun(airflow.home / "journal", date=date, dag_id="waits_in_its_own_run")
    own.complete()
    waiting = airflow.trigger("waits_in_its_own_run", logical_date=date)
    assert airflow.wait_run("waits_in_its_own_run", waiting) == "success"


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
