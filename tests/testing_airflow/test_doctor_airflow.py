"""``doctor`` in real Airflow: as a task, and on the command line beside a running API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow

BACKEND, PLUGIN = "API server's [state_store] backend", "API server's airflow-recovery"
STORE_DOOR, REST_DOOR = "the state store's door", "the REST door"


def by_command(airflow: LocalAirflow, *arguments: str, **settings: str) -> dict[str, dict[str, str]]:
    """The results by check, of ``airflow recovery doctor --json``."""
    command = [sys.executable, "-m", "airflow", "recovery", "doctor", "--json", "--timeout", "120", *arguments]
    env = {**airflow.env, **settings}
    done = subprocess.run(command, env=env, cwd=airflow.home, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert (done.returncode == 0) is document["ok"], done.stdout
    assert airflow.admin.password not in done.stdout + done.stderr
    return {each["check"]: each for each in document["results"]}


def wrong(results: dict[str, dict[str, str]]) -> list[str]:
    return [name for name, each in results.items() if each["status"] == "wrong"]


def by_task(airflow: LocalAirflow) -> tuple[str | None, str]:
    """How the task ended, and its log."""
    run_id = airflow.trigger("doctor")
    return airflow.wait_run("doctor", run_id, 240), airflow.log("doctor", run_id, "doctor", 1)


def test_a_deployment_as_it_should_be(airflow: LocalAirflow) -> None:
    state, said = by_task(airflow)
    assert state == "success", said
    for check in (STORE_DOOR, BACKEND, PLUGIN, "clock of the API server", "clock of the database", "Java"):
        assert f"OK  {check}: " in said
    found = by_command(airflow, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default")
    assert wrong(found) == []
    for check in (REST_DOOR, BACKEND, PLUGIN, "API server's [recovery]"):
        assert found[check]["status"] == "ok"


@pytest.mark.parametrize(
    ("breaks", "check"),
    [
        (lambda it: {"AIRFLOW__RECOVERY__JOURNAL": (it.home / "other").as_uri()}, "API server's [recovery]"),
        (lambda it: {"AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT": as_user(it, it.viewer.password)}, "API server's plugin"),
        (lambda it: {"AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT": as_user(it, "wrong")}, "API server's plugin"),
        (lambda it: {"AIRFLOW_CONN_SPARK_DEFAULT": ""}, "connection spark_default"),
    ],
    ids=["another journal", "a viewer", "a wrong password", "no connection"],
)
def test_control_what_is_broken_is_named(
    airflow: LocalAirflow, breaks: Callable[[LocalAirflow], dict[str, str]], check: str
) -> None:
    broken = breaks(airflow)
    found = by_command(airflow, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default", **broken)
    assert check in wrong(found)
    assert found[check]["next_step"]


def as_user(airflow: LocalAirflow, password: str) -> str:
    connection: dict[str, Any] = {"conn_type": "airflow_recovery", "host": airflow.url, "login": airflow.viewer.user}
    return json.dumps({**connection, "password": password})


def test_the_back_end_that_is_not_set_in_the_api_server_is_found(airflow_without_backend: LocalAirflow) -> None:
    state, said = by_task(airflow_without_backend)
    assert state == "failed"
    assert f"WRONG  {STORE_DOOR}: expected a way to clear tasks" in said
    assert "set `[state_store] backend" in said
    # The command line's own setting is not the API server's, and says nothing.
    mine = {"AIRFLOW__STATE_STORE__BACKEND": "airflow_recovery.plugins.state_backend.RecoveryStateBackend"}
    unasked = by_command(airflow_without_backend, **mine)
    assert [name for name, each in unasked.items() if each["status"] == "not checked"] == [
        "API server: plugin, [state_store] backend, doors"
    ]
    asked = by_command(airflow_without_backend, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default", **mine)
    assert (asked[BACKEND]["status"], asked[REST_DOOR]["status"]) == ("ok", "ok")
    assert "MetastoreBackend; tasks use [recovery] api_conn_id" in asked[BACKEND]["found"]
    there = by_command(airflow_without_backend, "--component", "api-server")
    assert wrong(there) == ["[state_store] backend"]
