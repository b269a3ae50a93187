"""Routes that wait for a store: how many at once, in which threads, and what happens after a time-out.

In a real API server, beside a task's heartbeat: `tests/testing_airflow/test_clear_clients_airflow.py`. Who may have a
place: `tests/security/test_starved_places.py`.
"""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio.to_thread
import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from rest_world import RestWorld

from airflow_recovery.api_server import app as app_module
from airflow_recovery.api_server import journals, rest_changes, rest_plan, rest_run, store_routes
from airflow_recovery.api_server.places import Places
from airflow_recovery.api_server.silence import Silence
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.errors import StoreAccessDenied, StoreTimeout
from airflow_recovery.story.question import QUESTIONS
from airflow_recovery.testing.patience import HANG_S

ROOM = 3
LIST = "list"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RestWorld:
    world = RestWorld(tmp_path, monkeypatch)
    world.world.go_all()
    return world


@pytest.fixture
def clock(rest: RestWorld, monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(journals, "silence", Silence(10.0, found))
    return found


class Store:
    """A store that raises ``error`` whatever it is asked for; ``asked`` counts."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.error: Exception | None = None
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        if name == LIST:
            self.asked += 1
            if self.error is not None:
                raise self.error
        return getattr(self._inner, name)


@pytest.fixture
def asked_store(rest: RestWorld) -> Store:
    rest.stores.journal = store = Store(rest.stores.journal)
    return store


def test_every_route_that_waits_for_a_store_has_threads_of_its_own() -> None:
    routes = [
        route
        for router in (
            *(module.router for module in (rest_run, rest_plan, rest_changes)),
            rest_run.question_routes(QUESTIONS.values()),
        )
        for route in router.routes
        if isinstance(route, APIRoute)
    ]
    assert len(routes) == 13
    paths = {route.path for route in routes}
    served = [route for route in app_module.app.routes if isinstance(route, APIRoute) and route.path in paths]
    assert len(served) == len(routes)
    for route in (*routes, *served):
        assert isinstance(route, StoreRoute)
        assert inspect.iscoroutinefunction(route.endpoint)


def test_after_a_time_out_nobody_asks_the_store_for_a_while(rest: RestWorld, asked_store: Store, clock: Clock) -> None:
    asked_store.error = StoreTimeout("Could not list s3://b/j: no complete answer.")
    assert rest.get().status_code == 503
    asked = asked_store.asked

    refused = [rest.get(), rest.post("plan", {}), rest.post("release/plan", {"region": "raw"})]

    assert [(each.status_code, each.json()["code"]) for each in refused] == [(503, "no_answer")] * 3
    assert asked_store.asked == asked
    assert (
        refused[0].json()["detail"]
        == f"The store {rest.stores.journal.base_uri} does not answer, and is asked again in 10 s."
    )
    assert refused[0].headers["Retry-After"] == "10"
    asked_store.error, clock.now = None, clock.now + 10.0
    assert rest.get().status_code == 200


def test_control_without_the_pause_every_request_waits_for_the_store(
    rest: RestWorld, asked_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "silence", Silence(pause_s=0.0))
    asked_store.error = StoreTimeout("no answer")
    for _ in range(3):
        assert rest.get().status_code == 503
    assert asked_store.asked == 3


def test_a_store_that_answers_is_asked_whatever_it_answers(rest: RestWorld, asked_store: Store, clock: Clock) -> None:
    asked_store.error = StoreAccessDenied("403")
    for _ in range(2):
        assert rest.get().json()["code"] == "store_denied"
    assert asked_store.asked == 2


class Silent:
    """An application with routes that wait until they are let go, and what it has of the pool that all share."""

    def __init__(self, route_class: type[APIRoute]) -> None:
        self._let_go = threading.Event()
        self.waiting = threading.Semaphore(0)
        router = APIRouter(route_class=route_class)
        router.add_api_route("/store", self._wait, methods=["GET"])
        self.app = FastAPI()
        self.app.include_router(router)
        self.app.add_api_route("/shared", self._shared, methods=["GET"])
        users = count()
        self.app.dependency_overrides[get_user] = lambda: SimpleNamespace(get_name=lambda: f"user {next(users)}")

    def _wait(self) -> str:
        self.waiting.release()
        assert self._let_go.wait(HANG_S)
        return "answered"

    async def _shared(self) -> float:
        return anyio.to_thread.current_default_thread_limiter().borrowed_tokens

    def ask(self, requests: int) -> tuple[float, list[int]]:
        """While as many requests as there is room for wait: threads taken from the pool, and what the others get."""
        with TestClient(self.app) as client, ThreadPoolExecutor(requests) as pool:
            asked: list[Future[Any]] = [pool.submit(client.get, "/store") for _ in range(ROOM)]
            for _ in range(ROOM):
                assert self.waiting.acquire(timeout=HANG_S)
            taken = client.get("/shared").json()
            if requests > ROOM:
                # Not before: one that finds room may be slow to take it.
                store_routes.places.wait_s = 0.05
                asked += [pool.submit(client.get, "/store") for _ in range(requests - ROOM)]
                while sum(each.done() for each in asked) < requests - ROOM:
                    threading.Event().wait(0.01)
            self._let_go.set()
            return taken, sorted(each.result(HANG_S).status_code for each in asked)


def test_who_finds_no_room_is_refused_and_nobody_takes_a_thread_of_the_shared_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_routes, "places", Places(ROOM, by_user=1, by_dag=ROOM, wait_s=HANG_S))
    taken, statuses = Silent(StoreRoute).ask(ROOM + 5)
    assert (taken, statuses) == (0, [200] * ROOM + [503] * 5)


def test_who_finds_room_in_time_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_routes, "places", Places(ROOM, by_user=1, by_dag=ROOM, wait_s=HANG_S))
    silent = Silent(StoreRoute)
    silent._let_go.set()
    with TestClient(silent.app) as client, ThreadPoolExecutor(20) as pool:
        assert {each.status_code for each in pool.map(lambda _: client.get("/store"), range(20))} == {200}


def test_control_plain_routes_wait_in_the_threads_that_tasks_heartbeats_need() -> None:
    taken, statuses = Silent(APIRoute).ask(ROOM)
    assert (taken, statuses) == (ROOM, [200] * ROOM)
