"""What doctor is told by Airflow: settings, connections, and what the API server says; each good, and broken."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doctor_results import wrongs

from airflow_recovery.attempt.clear_protocol import CALL_KEY, Answer, Call, Operation
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult
from airflow_recovery.doctor.checking import run_checks
from airflow_recovery.doctor.components import Component
from airflow_recovery.doctor.result import CheckResult, Status
from airflow_recovery.errors import ConfigurationError, RecoveryError
from airflow_recovery.hooks.clear_clients import BACKEND_PATH
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.model.codec import to_json
from airflow_recovery.task.doctor import (
    NO_RUN,
    AirflowChecks,
    ApiServer,
    Asked,
    check_airflow_settings,
    check_connection,
    check_description,
    check_settings,
    read_connection,
    spark_connection,
)

JOURNAL = "file:///recovery/journal"
SETTINGS = RecoverySettings(JOURNAL, f"{JOURNAL}/_results")
VERSION = "0.1.0"


def told(**other: Any) -> dict[str, Any]:
    """What an API server says of itself that is as it should be, but for ``other``."""
    return {
        "version": VERSION,
        "state_store_backend": BACKEND_PATH,
        "answers_calls": True,
        "journal": SETTINGS.journal,
        "results": SETTINGS.results,
        "deployment": None,
        "now_s": time.time(),
        "database_s": time.time(),
        **other,
    }


def described(*, has_other_clear_client: bool = False, **other: Any) -> dict[str, CheckResult]:
    asked = Asked(told(**other), time.time() - 1, time.time())
    return wrongs(check_description(asked, SETTINGS, has_other_clear_client=has_other_clear_client))


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", JOURNAL)
    monkeypatch.setattr("airflow_recovery.task.doctor.installed_versions", lambda: {"airflow-recovery": VERSION})


# What the API server says


def test_an_api_server_as_it_should_be() -> None:
    assert described() == {}


@pytest.mark.parametrize(
    ("other", "check"),
    [
        ({"version": "0.0.9"}, "API server's airflow-recovery"),
        ({"version": None}, "API server's airflow-recovery"),
        ({"answers_calls": False, "state_store_backend": "x.Y"}, "API server's [state_store] backend"),
        ({"journal": "file:///elsewhere"}, "API server's [recovery]"),
        ({"results": "file:///elsewhere"}, "API server's [recovery]"),
        ({"deployment": "other"}, "API server's [recovery]"),
        ({"wrong": "Expected the URI of the journal"}, "API server's [recovery]"),
        ({"now_s": time.time() - 3600}, "clock of the API server"),
        ({"database_s": time.time() + 3600}, "clock of the database"),
    ],
)
def test_an_api_server_that_is_not(other: dict[str, Any], check: str) -> None:
    assert list(described(**other)) == [check]


def test_another_back_end_is_right_where_tasks_have_a_connection() -> None:
    assert described(answers_calls=False, has_other_clear_client=True) == {}


# Its clear clients


class FakeHook:
    """`RecoveryApiHook`, of an API server that says ``description`` or raises it, and ``cleared``."""

    description: dict[str, Any] | Exception = {}  # noqa: RUF012
    cleared: Exception | None = None

    def __init__(self, conn_id: str) -> None:
        assert conn_id == "api"

    def describe(self) -> dict[str, Any]:
        if isinstance(self.description, Exception):
            raise self.description
        return self.description

    def clear(self, dag_id: str, run_id: str, request: ClearRequest, caller: object = None) -> ClearResult:
        assert request == ClearRequest()
        if self.cleared is not None:
            raise self.cleared
        return ClearResult()


NO_SUCH_RUN = RecoveryError(f"Expected it to succeed, found HTTP 404: Expected DAG 'x' to have a run {NO_RUN!r}.")
FORBIDDEN = ConfigurationError("Expected the user to be allowed to clear tasks, found HTTP 403.")


def over_rest(
    monkeypatch: pytest.MonkeyPatch,
    description: dict[str, Any] | Exception,
    cleared: Exception | None,
    context: Mapping[str, Any] | None = None,
) -> list[CheckResult]:
    monkeypatch.setattr("airflow_recovery.task.doctor.RecoveryApiHook", FakeHook)
    monkeypatch.setattr(FakeHook, "description", description)
    monkeypatch.setattr(FakeHook, "cleared", cleared)
    return list(run_checks(ApiServer("api", context).checks(SETTINGS)))


def test_a_clear_in_a_run_that_does_not_exist_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = over_rest(monkeypatch, told(), NO_SUCH_RUN)
    assert wrongs(found) == {}
    assert (found[-1].check, found[-1].status) == ("clears over REST", Status.OK)


@pytest.mark.parametrize("error", [RecoveryError("found: Connection refused"), FORBIDDEN])
def test_a_clear_client_that_can_not_be_used(monkeypatch: pytest.MonkeyPatch, error: RecoveryError) -> None:
    assert list(wrongs(over_rest(monkeypatch, told(), error))) == ["clears over REST"]
    assert list(wrongs(over_rest(monkeypatch, error, None))) == ["API server's plugin"]


def test_without_a_connection_and_a_task_the_api_server_can_not_be_asked() -> None:
    (found,) = run_checks(ApiServer(None, None).checks(SETTINGS))
    assert found.status is Status.NOT_CHECKED
    assert "RecoveryDoctorOperator" in found.next_step


class TaskStore:
    """A task state store; ``respond`` is what stands behind it in the API server, `None` for Airflow's own back end."""

    def __init__(self, respond: Callable[[Call], Answer] | None) -> None:
        self.values: dict[str, Any] = {}
        self._respond = respond

    def set(self, key: str, value: Any, **more: Any) -> None:
        if key == CALL_KEY and self._respond is not None:
            value = to_json(self._respond(Call.read(value)))
        self.values[key] = value

    def get(self, key: str) -> Any:
        return self.values.get(key)


def in_a_task(respond: Callable[[Call], Answer] | None) -> dict[str, Any]:
    instance = SimpleNamespace(dag_id="d", run_id="r", task_id="doctor", map_index=-1, id="id")
    return {"ti": instance, "task_state_store": TaskStore(respond)}


def current_server(call: Call) -> Answer:
    if call.operation is Operation.DESCRIBE:
        return Answer(call.call_id, description=told())
    assert call.request == ClearRequest()
    return Answer(call.call_id, result=ClearResult())


def older_server(call: Call) -> Answer:
    """One that knows no descriptions."""
    if call.operation is Operation.DESCRIBE:
        return Answer(call.call_id, error="'describe' is not a valid Operation")
    return Answer(call.call_id, result=ClearResult())


def test_a_task_asks_through_its_own_state_store() -> None:
    checks = list(run_checks(ApiServer(None, in_a_task(current_server)).checks(SETTINGS)))
    assert {check.status for check in checks} == {Status.OK}
    assert "API server's [state_store] backend" in {check.check for check in checks}


def test_an_older_api_server_is_told_to_a_task() -> None:
    found = wrongs(run_checks(ApiServer(None, in_a_task(older_server)).checks(SETTINGS)))
    assert list(found) == ["API server's airflow-recovery"]


def test_airflows_own_back_end_is_no_clear_client() -> None:
    found = wrongs(run_checks(ApiServer(None, in_a_task(None)).checks(SETTINGS)))
    assert "[recovery] api_conn_id" in found["clears by the state store"].next_step


def test_airflows_own_back_end_beside_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    found = over_rest(monkeypatch, told(answers_calls=False), None, in_a_task(None))
    assert wrongs(found) == {}
    assert found[0].status is Status.NOT_CHECKED


def test_a_user_of_some_dags_alone_is_tried_in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    found = over_rest(monkeypatch, FORBIDDEN, None, in_a_task(None))
    assert wrongs(found) == {}
    assert found[-1].found == "a clear of nothing was answered"


# Settings


def test_settings_as_they_should_be() -> None:
    assert {setting.status for setting in check_settings(Component.WORKER)} == {Status.OK}


def set_all(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"AIRFLOW__{name}", value)


def test_no_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL")
    found = wrongs(run_checks(AirflowChecks(Component.SCHEDULER, "spark_default").checks()))
    assert "AIRFLOW__RECOVERY__JOURNAL" in found["[recovery]"].found


def test_recovery_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, RECOVERY__JOB_RECOVERY_ENABLED="False")
    assert list(wrongs(check_settings(Component.WORKER))) == ["[recovery] job_recovery_enabled"]


def test_a_back_end_of_workers_hides_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, WORKERS__STATE_STORE_BACKEND="airflow.state.metastore.MetastoreBackend")
    assert list(wrongs(check_settings(Component.WORKER))) == ["[workers] state_store_backend"]
    assert wrongs(check_settings(Component.API_SERVER)).keys() == {"[state_store] backend"}
    set_all(monkeypatch, RECOVERY__API_CONN_ID="api")
    assert wrongs(check_settings(Component.WORKER)) == {}


def test_the_back_end_where_the_api_server_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrongs(check_settings(Component.API_SERVER))["[state_store] backend"].expected == BACKEND_PATH
    set_all(monkeypatch, STATE_STORE__BACKEND="no.such.Class")
    assert "no.such" in wrongs(check_settings(Component.API_SERVER))["[state_store] backend"].found
    set_all(monkeypatch, STATE_STORE__BACKEND=BACKEND_PATH)
    assert wrongs(check_settings(Component.API_SERVER)) == {}
    set_all(monkeypatch, STATE_STORE__BACKEND="no.such.Class", RECOVERY__API_CONN_ID="api")
    assert wrongs(check_settings(Component.API_SERVER)) == {}


# Connections


def connection(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    connection(monkeypatch, "s3", conn_type="aws", password="hunter2")
    assert wrongs(check_connection("[recovery] aws_conn_id", "s3", ("aws",))) == {}
    other = wrongs(check_connection("[recovery] aws_conn_id", "s3", ("airflow_recovery",)))
    assert "of type 'aws'" in other["[recovery] aws_conn_id"].found
    gone = wrongs(check_connection("[recovery] aws_conn_id", "gone", ("aws",)))
    assert "fernet_key" in gone["[recovery] aws_conn_id"].next_step
    assert "hunter2" not in repr([*check_connection("x", "s3", ("aws",)), *other.values()])


@pytest.mark.parametrize(
    ("fields", "master", "is_connect", "is_cluster"),
    [
        ({"conn_type": "spark", "host": "local[2]"}, "local[2]", False, False),
        ({"conn_type": "spark", "host": "spark://m", "port": 7077}, "spark://m:7077", False, False),
        ({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}, "yarn", False, True),
        ({"conn_type": "spark_connect", "host": "sc://c", "password": "hunter2"}, "sc://c:15002", True, False),
    ],
)  # fmt: skip
def test_where_a_connection_leads(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], master: str, is_connect: bool, is_cluster: bool
) -> None:
    connection(monkeypatch, "to_spark", **fields)
    read = read_connection("to_spark")
    assert read is not None
    found = spark_connection(read)
    assert (found.master, found.is_connect, found.is_cluster) == (master, is_connect, is_cluster)
    assert "hunter2" not in repr(found)


# All of a component


def results_of(component: Component, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, CheckResult]:
    set_all(monkeypatch, RECOVERY__JOURNAL=f"file://{folder}/journal")
    monkeypatch.setattr("airflow_recovery.task.doctor.check_archive", lambda environment, stores: ())
    connection(monkeypatch, "spark_default", conn_type="spark", host="local[1]")
    return {check.check: check for check in run_checks(AirflowChecks(component, "spark_default").checks(), 60.0)}


def test_a_worker_is_looked_at_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    results = results_of(Component.WORKER, monkeypatch, tmp_path)
    assert {"Python", "[recovery]", "rights on the journal", "rights on the results", "Java", "spark-submit"} <= set(
        results
    )
    assert "put" in results["rights on the results"].found  # the driver runs here
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "raced"] == []
    orphans = results["[scheduler] orphaned_tasks_check_interval"]
    assert (orphans.status, orphans.expected) == (Status.WARNING, "30 s")
    assert "300 s" in orphans.found
    assert orphans.next_step.startswith("Set AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL=30 for the scheduler")


def test_control_what_is_recommended_of_airflows_settings_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    set_all(monkeypatch, SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL="30")
    found = {result.check: result for result in check_airflow_settings(Component.SCHEDULER)}
    assert found["[scheduler] orphaned_tasks_check_interval"].status is Status.OK
    assert found["[scheduler] task_instance_heartbeat_timeout"].status is Status.WARNING


@pytest.mark.parametrize(("executor", "is_own"), [("LocalExecutor", True), ("CeleryExecutor,LocalExecutor", False)])
def test_a_worker_says_whether_the_scheduler_has_settings_of_its_own(
    monkeypatch: pytest.MonkeyPatch, executor: str, is_own: bool
) -> None:
    set_all(monkeypatch, CORE__EXECUTOR=executor)
    found = {result.check: result for result in check_airflow_settings(Component.WORKER)}
    next_step = found["[scheduler] orphaned_tasks_check_interval"].next_step
    assert ("--component scheduler" not in next_step) is is_own


@pytest.mark.parametrize("executor", ["LocalExecutor", "CeleryExecutor"])
def test_folders_are_warned_of_where_the_executor_has_several_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executor: str
) -> None:
    set_all(monkeypatch, CORE__EXECUTOR=executor)
    results = results_of(Component.API_SERVER, monkeypatch, tmp_path)
    warned = {check for check, result in results.items() if result.status is Status.WARNING}
    from_every = {"journal from every worker", "results from every worker"}
    assert from_every & warned == (from_every if executor == "CeleryExecutor" else set())


def test_what_a_component_does_not_need_is_not_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader = results_of(Component.TRIGGERER, monkeypatch, tmp_path)
    assert reader["rights on the journal"].found.startswith("list, get below")
    assert not {"Java", "spark-submit", "clears over REST"} & set(reader)
    assert "rights on the journal" not in results_of(Component.SCHEDULER, monkeypatch, tmp_path)
    assert "delete" in results_of(Component.GC, monkeypatch, tmp_path)["rights on the journal"].found


def test_a_connection_that_is_not_there_stops_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("airflow_recovery.task.doctor.check_archive", lambda environment, stores: ())
    set_all(monkeypatch, RECOVERY__JOURNAL=f"file://{tmp_path}/journal", RECOVERY__AWS_CONN_ID="gone")
    found = wrongs(run_checks(AirflowChecks(Component.WORKER, "no_spark").checks(), 60.0))
    assert set(found) == {"[recovery] aws_conn_id", "connection no_spark"}


@pytest.mark.slow
def test_a_connection_to_the_api_server_of_another_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection(monkeypatch, "api", conn_type="http", host="http://127.0.0.1:1")
    set_all(monkeypatch, RECOVERY__API_CONN_ID="api")
    found = wrongs(results_of(Component.WORKER, monkeypatch, tmp_path).values())
    assert "airflow_recovery" in found["[recovery] api_conn_id"].expected
    assert wrongs(results_of(Component.TRIGGERER, monkeypatch, tmp_path).values()) == {}
