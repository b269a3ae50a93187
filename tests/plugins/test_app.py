"""What the endpoint says when the database does not answer; everything else is in `tests/testing_airflow`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.api_fastapi.common.db.common import _get_session
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from airflow_recovery.execution.scheduler import ClearRequest, ClearResult
from airflow_recovery.plugins import app as module

LOCKED = OperationalError("UPDATE", {}, Exception("database is locked"))


@pytest.fixture
def open_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: dict[Any, Any] = {
        each.dependency: lambda: None
        for route in module.app.routes
        if isinstance(route, APIRoute)
        for each in route.dependencies
    }
    monkeypatch.setattr(module.app, "dependency_overrides", allowed)


def clear() -> Any:
    with TestClient(module.app, raise_server_exceptions=False) as client:
        return client.post("/dags/d/runs/r/clear", json={"request": ClearRequest().to_json()})


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
