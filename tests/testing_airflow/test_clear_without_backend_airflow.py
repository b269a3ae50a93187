"""An Airflow that keeps its own state store backend: the endpoint is used, or the error names both settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doctor_in_airflow import BACKEND, OUR_BACKEND, REST_DOOR, STORE_DOOR, doctor_command, doctor_task, wrong

from airflow_recovery.testing.local_airflow import LocalAirflow

pytestmark = pytest.mark.airflow


def said(airflow: LocalAirflow, conf: dict[str, str]) -> Any:
    run_id = airflow.trigger("clear_choice", conf=conf)
    assert airflow.wait_run("clear_choice", run_id) == "success", airflow.log("clear_choice", run_id, "ask", 1)
    return json.loads((Path(airflow.env["CLEAR_CLIENTS_OUT"]) / run_id / "said.json").read_text())


def test_the_endpoint_is_the_second_choice(airflow_without_backend: LocalAirflow) -> None:
    found = said(airflow_without_backend, {"clear_client": "open", "api_conn_id": "airflow_recovery_default"})

    assert found == {"states": {"ask": "running"}, "tries": ["ask"]}


def test_with_neither_clear_client_both_settings_are_named(airflow_without_backend: LocalAirflow) -> None:
    found = said(airflow_without_backend, {"clear_client": "open"})

    assert found["tries"] is None
    assert found["states"] == {"ask": "running"}
    assert found["error"].startswith("ClearNotConfigured: ")
    assert "[state_store] backend" in found["error"]
    assert "[recovery] api_conn_id" in found["error"]


def test_the_state_store_client_alone_says_that_it_is_not_installed(airflow_without_backend: LocalAirflow) -> None:
    found = said(airflow_without_backend, {"clear_client": "store"})

    assert found["error"].startswith("BackendNotInstalled: ")


def test_doctor_finds_the_back_end_that_is_not_set_in_the_api_server(airflow_without_backend: LocalAirflow) -> None:
    state, log = doctor_task(airflow_without_backend)
    assert state == "failed"
    assert f"WRONG  {STORE_DOOR}: expected a way to clear tasks" in log
    assert "set `[state_store] backend" in log
    # The command line's own setting is not the API server's, and says nothing.
    mine = {"AIRFLOW__STATE_STORE__BACKEND": OUR_BACKEND}
    unasked = doctor_command(airflow_without_backend, **mine)
    assert [name for name, each in unasked.items() if each["status"] == "not checked"] == [
        "API server: plugin, [state_store] backend, ways to clear tasks"
    ]
    asked = doctor_command(airflow_without_backend, AIRFLOW__RECOVERY__API_CONN_ID="airflow_recovery_default", **mine)
    assert (asked[BACKEND]["status"], asked[REST_DOOR]["status"]) == ("ok", "ok")
    assert "MetastoreBackend; tasks use [recovery] api_conn_id" in asked[BACKEND]["found"]
    there = doctor_command(airflow_without_backend, "--component", "api-server")
    assert wrong(there) == ["[state_store] backend"]
