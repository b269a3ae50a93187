"""The size of a pool: by either clear client, and without one. It never fails a task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_recovery.attempt.clear_protocol import CALL_KEY, Answer, Call, Operation
from airflow_recovery.errors import ConfigurationError, NotMine
from airflow_recovery.hooks.clear_clients import open_clear_client
from airflow_recovery.hooks.recovery_api import RecoveryApiHook
from airflow_recovery.model.codec import to_json


class Store:
    """A task state store; ``installed`` is our backend in the API server."""

    def __init__(self, *, installed: bool) -> None:
        self.values: dict[str, Any] = {}
        self.calls: list[Call] = []
        self.installed = installed
        self.refuses: str | None = None

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        if key == CALL_KEY and self.installed:
            call = Call.read(value)
            self.calls.append(call)
            slots = 3 if call.operation is Operation.POOL else None
            value = to_json(Answer(call.call_id, slots=slots, error=self.refuses))
        self.values[key] = value

    def get(self, key: str) -> Any:
        return self.values.get(key)


def context(store: Store) -> dict[str, Any]:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="g.me", map_index=-1, id="id-me")
    return {"ti": ti, "task_state_store": store}


def test_the_state_store_client_asks() -> None:
    store = Store(installed=True)
    clear_client = open_clear_client(context(store))
    assert clear_client.pool_slots("own") == 3
    assert [(call.operation, call.text) for call in store.calls] == [(Operation.POOL, "own")]


def test_without_a_clear_client_nothing_is_known_and_nothing_fails() -> None:
    clear_client = open_clear_client(context(Store(installed=False)))
    assert clear_client.pool_slots("own") is None


def test_an_older_api_server_that_does_not_know_the_question_is_no_failure() -> None:
    store = Store(installed=True)
    store.refuses = "'pool' is not a valid Operation"
    clear_client = open_clear_client(context(store))
    assert clear_client.pool_slots("own") is None


class Http:
    """What Airflow's API answers next (status, body); what it was asked."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[str, str, Any]] = []

    def __call__(self, hook: Any, method: str, path: str, body: Any, token: str | None = None) -> Any:
        self.seen.append((method, path, body))
        status, found = self.answers.pop(0)
        return SimpleNamespace(status_code=status, json=lambda: found, text=str(found))


def hook(monkeypatch: pytest.MonkeyPatch, http: Http) -> RecoveryApiHook:
    value = '{"conn_type": "airflow_recovery", "host": "http://api", "password": "t", "extra": {"auth": "token"}}'
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT", value)
    monkeypatch.setattr(RecoveryApiHook, "_send", lambda self, *given, **named: http(self, *given, **named))
    return RecoveryApiHook()


def test_the_rest_client_uses_airflows_own_api(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http((200, {"slots": 4}), (404, {"detail": "no such pool"}))
    asked = hook(monkeypatch, http)
    assert asked.pool_slots("a pool") == 4
    assert asked.pool_slots("gone") is None
    assert http.seen == [("GET", "/api/v2/pools/a%20pool", None), ("GET", "/api/v2/pools/gone", None)]


def test_the_state_of_a_dag_run_is_asked_of_airflows_own_api(monkeypatch: pytest.MonkeyPatch) -> None:
    http = Http((200, {"state": "running"}), (404, {"detail": "no such run"}))
    asked = hook(monkeypatch, http)
    assert asked.dag_run_state("a dag", "manual__1+1") == "running"
    assert asked.dag_run_state("a dag", "gone") is None
    path = "/api/v2/dags/a%20dag/dagRuns"
    assert http.seen == [("GET", f"{path}/manual__1%2B1", None), ("GET", f"{path}/gone", None)]


def test_a_user_who_may_not_see_pools_is_told_by_the_hook_and_hidden_by_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    http = Http(*[(403, {"detail": "no"})] * 2)
    with pytest.raises(ConfigurationError, match="HTTP 403"):
        hook(monkeypatch, http).pool_slots("own")
    assert open_clear_client(context(Store(installed=False)), "airflow_recovery_default").pool_slots("own") is None


def test_a_zombie_asks_in_vain_and_learns_it_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_client = open_clear_client(context(Store(installed=True)))

    def gone(*arguments: Any) -> None:
        raise NotMine("gone")

    monkeypatch.setattr("airflow_recovery.hooks.clear_clients.StateStoreClient._call", gone)
    assert clear_client.pool_slots("own") is None
