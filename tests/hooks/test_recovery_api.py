"""The hook against a small HTTP server that behaves as Airflow's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery.attempt.clear_protocol import Caller
from airflow_recovery.attempt.task_instances import ClearRequest, Observation, TaskTry
from airflow_recovery.errors import ConfigurationError, NotMine, RecoveryError
from airflow_recovery.hooks.recovery_api import RecoveryApiHook

OBSERVED = Observation({"a": TaskTry("a", -1, 1, "id-a", "success")})


class Api:
    """``answers``: what the endpoint says next (status, body); then 200 and `OBSERVED`. The newest token is good."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.tokens = 0
        self.seen: list[tuple[str, str, Any]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(*api.reply("GET", self.path, None, self.headers))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._reply(*api.reply(self.command, self.path, body, self.headers))

            do_PATCH = do_POST

            def _reply(self, status: int, body: Any) -> None:
                payload = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *arguments: Any) -> None:
                """Silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        self.seen.append((method, path, body))
        if path == "/auth/token":
            if method == "POST" and body["password"] != "right":
                return 401, {"detail": "Invalid credentials"}
            self.tokens += 1
            return 201, {"access_token": f"token-{self.tokens}"}
        if headers["Authorization"] not in (f"Bearer token-{self.tokens}", "Bearer fixed"):
            return 401, {"detail": "Invalid JWT token"}
        return self.answers.pop(0) if self.answers else (200, OBSERVED.to_json())


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def connect(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> RecoveryApiHook:
    value = {"conn_type": "airflow_recovery", "login": "svc", "password": "right", **settings}
    monkeypatch.setenv("AIRFLOW_CONN_AIRFLOW_RECOVERY_DEFAULT", json.dumps(value))
    return RecoveryApiHook()


def test_the_token_is_fetched_once_and_again_when_it_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = connect(monkeypatch, host=api.url)

    assert hook.observe("d", "r") == hook.observe("d", "r") == OBSERVED
    assert api.tokens == 1
    api.tokens = 7  # the server has forgotten the old one
    assert hook.observe("d", "r") == OBSERVED
    assert api.tokens == 8


@pytest.mark.parametrize(
    ("extra", "password", "method"), [("token", "fixed", None), ("none", None, "GET"), ("password", "right", "POST")]
)
def test_ways_to_a_token(
    api: Api, monkeypatch: pytest.MonkeyPatch, extra: str, password: str | None, method: str | None
) -> None:
    hook = connect(monkeypatch, host=api.url, password=password, extra={"auth": extra})

    assert hook.observe("d", "r") == OBSERVED
    assert [each[0] for each in api.seen if each[1] == "/auth/token"] == ([method] if method else [])


def test_ids_are_quoted_and_the_caller_is_sent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers = [(200, {"cleared": ["a"], "unmoved": {}})]

    done = connect(monkeypatch, host=api.url).clear("d", "r+1/x", ClearRequest({"a": "1"}), Caller("me", "id"))

    assert done.cleared == ("a",)
    _, path, body = api.seen[-1]
    assert path == "/airflow-recovery/v1/dags/d/runs/r%2B1%2Fx/clear"
    assert body["caller"] == {"key": "me", "ti_id": "id"}


@pytest.mark.parametrize(
    ("status", "detail", "error", "told"),
    [
        (403, "Forbidden", ConfigurationError, "role User or higher"),
        (404, "Not Found", ConfigurationError, "Install airflow-recovery where the API server runs"),
        (404, "Expected DAG 'd' to have a run 'r'", RecoveryError, "HTTP 404"),
        (410, "was cleared", NotMine, "was cleared"),
        (500, "boom", RecoveryError, "HTTP 500"),
    ],
)
def test_what_the_server_says_is_told(
    api: Api, monkeypatch: pytest.MonkeyPatch, status: int, detail: str, error: type[Exception], told: str
) -> None:
    api.answers = [(status, {"detail": detail})]

    with pytest.raises(error, match=told) as raised:
        connect(monkeypatch, host=api.url).observe("d", "r")
    assert type(raised.value) is error


def test_a_wrong_password_names_the_connection(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with fails_with("api-user-refused", connection="airflow_recovery_default", status=401):
        connect(monkeypatch, host=api.url, password="wrong").observe("d", "r")


@pytest.mark.slow
def test_a_server_that_is_restarting_is_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.answers = [(503, {}), (503, {})]

    assert connect(monkeypatch, host=api.url).observe("d", "r") == OBSERVED


def test_a_server_that_is_not_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_recovery.testing.local_airflow import free_port

    monkeypatch.setattr("airflow_recovery.hooks.recovery_api.RETRIES", 0)
    hook = connect(monkeypatch, host=f"http://127.0.0.1:{free_port()}")
    with fails_with("api-no-answer"):
        hook.observe("d", "r")


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({"host": "http://api:8080/"}, "http://api:8080"),
        ({"host": "api", "port": 8080}, "http://api:8080"),
        ({"host": "api", "port": 8443, "schema": "https"}, "https://api:8443"),
        ({"host": "https://api.example/base", "port": None}, "https://api.example/base"),
    ],
)
def test_addresses(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], url: str) -> None:
    assert connect(monkeypatch, **settings).base_url == url


def test_a_connection_without_host_or_with_another_auth_is_refused(monkeypatch: pytest.MonkeyPatch, api: Api) -> None:
    with fails_with("api-without-host"):
        connect(monkeypatch).observe("d", "r")
    with fails_with("auth-unknown", found="kerberos"):
        connect(monkeypatch, host=api.url, extra={"auth": "kerberos"}).observe("d", "r")


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("g.a", "/api/v2/dags/d%2F1/dagRuns/r%201/taskInstances/g.a"),
        ("g.a|3", "/api/v2/dags/d%2F1/dagRuns/r%201/taskInstances/g.a/3"),
    ],
)
@pytest.mark.parametrize(
    ("before", "is_left"), [(None, True), ("recovery: kept", True), ("ann: do not touch, ticket 7", False)]
)
def test_a_note_is_left_by_airflows_own_api_and_a_persons_stays(
    api: Api, monkeypatch: pytest.MonkeyPatch, key: str, path: str, before: str | None, is_left: bool
) -> None:
    api.answers = [(200, {"note": before}), (200, {})]
    connect(monkeypatch, host=api.url, login="u", password="right").note("d/1", "r 1", key, "recovery: ran")
    told = [("PATCH", path, {"note": "recovery: ran"})] if is_left else []
    assert api.seen[1:] == [("GET", path, None), *told]


def test_runs_that_have_not_ended_are_read_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = connect(monkeypatch, host=api.url)
    runs = [
        {"dag_run_id": "a", "logical_date": "2026-01-01T01:00:00+01:00", "partition_key": None},
        {"dag_run_id": "b", "logical_date": None, "partition_key": "eu"},
        {"dag_run_id": "c", "logical_date": None},
    ]
    api.answers = [(200, {"dag_runs": part, "total_entries": 3}) for part in (runs[:2], runs[2:])]
    assert hook.live_runs("d") == [("a", "date-2026-01-01T000000Z"), ("b", "partition-eu"), ("c", "run-c")]
    asked = "/api/v2/dags/d/dagRuns?state=queued&state=running&limit=100&offset="
    assert [path for _, path, _ in api.seen[1:]] == [f"{asked}0", f"{asked}2"]
