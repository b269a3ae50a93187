"""What the API server says of itself to who asks from elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import airflow.state
import pytest
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api import security
from airflow.models.dag import DagModel
from airflow.state.metastore import MetastoreBackend
from rest_world import RestWorld
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_recovery.api_server import access
from airflow_recovery.api_server import app as app_module
from airflow_recovery.api_server.description import describe
from airflow_recovery.api_server.state_backend import RecoveryStateBackend, answer
from airflow_recovery.attempt.clear_protocol import Answer, Call, Operation
from airflow_recovery.model.codec import from_json, to_json

JOURNAL = "file:///recovery/journal"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", JOURNAL)
    monkeypatch.setattr(airflow.state, "_backend_instance", RecoveryStateBackend())
    one = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with Session(one) as opened:
        yield opened


def test_versions_places_and_clocks(session: Session) -> None:
    found = describe(session)
    assert (found["journal"], found["results"]) == (JOURNAL, f"{JOURNAL}/_results")
    assert found["version"]
    assert found["answers_calls"]
    assert found["state_store_backend"].endswith("state_backend.RecoveryStateBackend")
    assert found["database"] == "sqlite"
    assert abs(found["database_s"] - time.time()) < 60
    assert abs(found["now_s"] - time.time()) < 60


def test_another_back_end_answers_no_calls(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow.state, "_backend_instance", MetastoreBackend())
    found = describe(session)
    assert (found["answers_calls"], found["state_store_backend"]) == (
        False,
        "airflow.state.metastore.MetastoreBackend",
    )


def test_settings_that_can_not_be_used_are_told(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW__RECOVERY__JOURNAL")
    assert "[recovery] journal" in describe(session)["wrong"]


def test_a_task_may_ask_through_its_own_state_store(session: Session) -> None:
    scope: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)
    call = Call("c", Operation.DESCRIBE)
    told = from_json(Answer, json.loads(answer(session, scope, json.dumps(to_json(call)))))
    assert told.error is None
    assert told.description is not None
    assert told.description["journal"] == JOURNAL


@pytest.mark.parametrize(("granted", "status"), [(True, 200), (False, 403)])
def test_who_may_edit_every_dag_may_ask(
    tmp_path: Path, session: Session, monkeypatch: pytest.MonkeyPatch, granted: bool, status: int
) -> None:
    asked: list[tuple[str, str, str | None]] = []

    def is_authorized_dag(*, method: str, access_entity: Any, details: Any, user: Any) -> bool:
        asked.append((method, access_entity.name, details.id))
        return granted

    rest = RestWorld(tmp_path, monkeypatch)
    overrides = app_module.app.dependency_overrides
    del overrides[access.MAY_ACT[0].dependency]
    overrides[_get_session] = lambda: session
    manager = SimpleNamespace(is_authorized_dag=is_authorized_dag)
    monkeypatch.setattr(security, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    found = rest.get("/description")
    assert found.status_code == status
    assert asked == [("PUT", "TASK_INSTANCE", None)]
    assert ("journal" in found.json()) is granted
    assert rest.get("/description", user=None).status_code == 401


@pytest.mark.parametrize("protected", [True, pytest.param(False, marks=pytest.mark.control)])
def test_fault_407_who_may_edit_one_dag_is_not_told_of_the_deployment(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    rest = RestWorld(tmp_path, monkeypatch)
    overrides = app_module.app.dependency_overrides
    del overrides[access.MAY_ACT[0].dependency]
    overrides[_get_session] = lambda: session
    manager = SimpleNamespace(is_authorized_dag=lambda *, details, **asked: details.id == "mine")
    monkeypatch.setattr(security, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    if not protected:
        overrides[access.of_every_dag] = lambda: None
    assert rest.get("/description").status_code == 403
    found = rest.get("/description?dag_id=mine")
    assert found.status_code == (422 if protected else 200)
    assert ("journal" in found.json()) is not protected
