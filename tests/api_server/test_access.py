"""What each route asks of Airflow's authorisation: seeing takes the right to read a run, doing the right to edit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.core_api import security
from airflow.models.dag import DagModel
from rest_world import DAG, RUN, RestWorld

from airflow_recovery.api_server import access
from airflow_recovery.api_server import app as app_module

READ, EDIT = ("GET", "RUN"), ("PUT", "TASK_INSTANCE")
BASE = f"/dags/{DAG}/runs"
SEEING: list[tuple[str, str, Any]] = [
    ("GET", BASE, None),
    ("GET", f"{BASE}/{RUN}", None),
    ("GET", f"{BASE}/{RUN}/channels", None),
    ("GET", f"{BASE}/{RUN}/why?region=raw", None),
    ("GET", f"/dags/{DAG}/advice", None),
    ("GET", f"/dags/{DAG}/questions", None),
    ("POST", f"{BASE}/{RUN}/plan", {}),
    ("POST", f"{BASE}/{RUN}/release/plan", {"region": "raw"}),
]
DOING: list[tuple[str, str, Any]] = [
    ("POST", f"{BASE}/{RUN}/plan/run", {"plan_id": "p", "plan": {}, "tries": {}}),
    ("POST", f"{BASE}/{RUN}/release", {"region": "raw", "attempt": 1}),
    ("POST", f"{BASE}/{RUN}/pin", {"region": "raw", "attempt": 1}),
]


class Manager:
    """An auth manager. ``grants``: what everybody has. ``asked``: what it was asked for."""

    def __init__(self) -> None:
        self.grants: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, str, str]] = []

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: Any) -> bool:
        self.asked.append((method, access_entity.name, details.id))
        return (method, access_entity.name) in self.grants


@pytest.fixture
def rest(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch)
    world.world.go_all()
    return world


@pytest.fixture
def manager(rest: RestWorld, monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Airflow's own dependencies ask it: of them nothing is replaced."""
    found = Manager()
    overrides = app_module.app.dependency_overrides
    for each in (*access.MAY_READ, access.MAY_ACT[0]):
        del overrides[each.dependency]
    monkeypatch.setattr(security, "get_auth_manager", lambda: found)
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    return found


def ask(rest: RestWorld, method: str, path: str, body: Any) -> Any:
    return rest.client().request(method, path, json=body)


@pytest.mark.parametrize(("method", "path", "body"), SEEING)
def test_who_may_read_a_run_sees_the_tab_and_its_plans(
    rest: RestWorld, manager: Manager, method: str, path: str, body: Any
) -> None:
    assert ask(rest, method, path, body).status_code == 403
    manager.grants = {READ}
    assert ask(rest, method, path, body).status_code == 200
    assert set(manager.asked) == {(*READ, DAG)}


@pytest.mark.parametrize("grants", [set(), {READ}, {EDIT}], ids=["nothing", "reading", "editing alone"])
@pytest.mark.parametrize(("method", "path", "body"), DOING)
def test_who_may_not_edit_task_instances_does_nothing(
    rest: RestWorld, manager: Manager, method: str, path: str, body: Any, grants: set[tuple[str, str]]
) -> None:
    manager.grants = grants
    before = sorted(each.key for each in rest.stores.journal.list())
    answer = ask(rest, method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert sorted(each.key for each in rest.stores.journal.list()) == before
    assert rest.audited == []


def test_control_with_both_rights_it_is_done(rest: RestWorld, manager: Manager) -> None:
    manager.grants = {READ, EDIT}
    done = rest.post("release", {"region": "raw", "attempt": 1})
    assert (done.status_code, [event for _, event, _ in rest.audited]) == (200, ["airflow_recovery.release"])


def test_what_the_page_is_told_is_what_protects(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "get_auth_manager", lambda: manager)
    user: Any = SimpleNamespace(get_name=lambda: "ann")
    assert not access.may_act(user, DAG)
    manager.grants = {EDIT}
    assert access.may_act(user, DAG)
