"""What the endpoint says when the database does not answer; everything else is in `tests/testing_airflow`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api.security import get_user
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from airflow_recovery.api_server import app as module
from airflow_recovery.api_server.access import same_origin
from airflow_recovery.attempt.rebuild import Rebuilt
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation
from airflow_recovery.model.codec import to_json

LOCKED = OperationalError("UPDATE", {}, Exception("database is locked"))


@pytest.fixture
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: dict[Any, Any] = {
        dependency.dependency: lambda: None
        for route in module.app.routes
        if isinstance(route, APIRoute)
        for dependency in route.dependencies
    }
    allowed[get_user] = lambda: SimpleNamespace(get_name=lambda: "ann")
    monkeypatch.setattr(module.app, "dependency_overrides", allowed)
    monkeypatch.setattr(module, "audit", lambda *arguments: None)


OBSERVE = "/dags/d/runs/r/observe", "{}"
CLEAR = "/dags/d/runs/r/clear", json.dumps({"request": to_json(ClearRequest(unblock=True))})
REBUILD = "/dags/d/rebuild", json.dumps({"run_key": "run-r", "notes": {"a": "kept"}, "dry_run": False})
JSON = {"Content-Type": "application/json"}


def post(path: str, body: str, headers: dict[str, str] = JSON) -> Any:
    with TestClient(module.app, raise_server_exceptions=False) as client:
        return client.post(path, content=body, headers=headers)


def clear() -> Any:
    return post(*CLEAR)


@pytest.fixture
def done(open_to_all: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was audited and done, in this order; what a request itself says is looked at as ever."""
    found: list[str] = []
    overrides = module.app.dependency_overrides
    del overrides[same_origin]
    overrides[_get_session] = lambda: None
    monkeypatch.setattr(module, "audit", lambda session, who, event, *more: found.append(f"{event} by {who}"))
    monkeypatch.setattr(module, "run_of_key", lambda *arguments: "r")
    monkeypatch.setattr(module, "clear", lambda *given, **named: found.append("clear") or ClearResult(()))
    monkeypatch.setattr(module, "observe", lambda *given: found.append("observe") or Observation({}))
    monkeypatch.setattr(module, "set_finished", lambda *given: found.append("rebuild") or Rebuilt("r", (), {}))
    return found


FOREIGN = [
    ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
    ({**JSON, "Sec-Fetch-Site": "same-site"}, 403),
    ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ({}, 415),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
@pytest.mark.parametrize("request_", [OBSERVE, CLEAR, REBUILD], ids=["observe", "clear", "rebuild"])
def test_what_another_sites_page_can_send_is_not_done(
    done: list[str], request_: tuple[str, str], headers: dict[str, str], status: int
) -> None:
    answer = post(*request_, headers)
    assert (answer.status_code, done) == (status, [])


@pytest.mark.parametrize("request_", [CLEAR, REBUILD], ids=["clear", "rebuild"])
def test_control_without_that_look_it_is_done(done: list[str], request_: tuple[str, str]) -> None:
    module.app.dependency_overrides[same_origin] = lambda: None
    assert post(*request_, {**JSON, "Sec-Fetch-Site": "cross-site"}).status_code == 200
    assert len(done) == 2


def test_every_post_of_the_api_looks_where_it_comes_from() -> None:
    posts = [route for route in module.app.routes if isinstance(route, APIRoute) and "POST" in route.methods]
    assert len(posts) > 5
    for route in posts:
        assert same_origin in [dependency.dependency for dependency in route.dependencies], route.path


def test_both_are_in_the_audit_log_before_they_are_done(done: list[str]) -> None:
    for each in (CLEAR, REBUILD):
        assert post(*each).status_code == 200
    assert done == ["airflow_recovery.clear by ann", "clear", "airflow_recovery.rebuild by ann", "rebuild"]


def test_a_rebuild_that_changes_nothing_is_not_audited(done: list[str]) -> None:
    path, body = REBUILD
    assert post(path, body.replace("false", "true")).status_code == 200
    assert done == ["rebuild"]


@pytest.mark.usefixtures("open_to_all")
def test_a_lock_that_is_not_had_is_worth_asking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*arguments: Any, **named: Any) -> Any:
        raise LOCKED

    module.app.dependency_overrides[_get_session] = lambda: None
    monkeypatch.setattr(module, "clear", locked)

    assert clear().status_code == 503


@pytest.mark.usefixtures("open_to_all")
def test_a_commit_that_fails_is_not_reported_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def session() -> Iterator[None]:
        yield None
        raise LOCKED

    module.app.dependency_overrides[_get_session] = session
    monkeypatch.setattr(module, "clear", lambda *arguments, **named: ClearResult(("a",)))

    answer = clear()

    assert answer.status_code == 503
    assert "database is locked" in answer.json()["detail"]


@pytest.mark.usefixtures("open_to_all")
def test_without_the_handler_it_would_not_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*arguments: Any, **named: Any) -> Any:
        raise LOCKED

    module.app.dependency_overrides[_get_session] = lambda: None
    monkeypatch.setattr(module, "clear", locked)
    monkeypatch.setattr(module.app, "exception_handlers", {})
    monkeypatch.setattr(module.app, "middleware_stack", None)

    assert clear().status_code == 500
