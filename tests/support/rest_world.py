"""The REST API over a real journal and a real protocol, with a fake in place of every piece of Airflow.

Who asks is said in the header ``X-User``: ``admin``, ``viewer``, ``stranger`` (logged in, and may see nothing); nobody
without it. A browser says it in the cookie ``user``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fakes
import pytest
from airflow.api_fastapi.common.db.common import _get_session
from airflow.api_fastapi.core_api.security import get_user
from fastapi import HTTPException, Request
from fastapi.testclient import TestClient

from airflow_recovery.api_server import (
    access,
    rest_changes,
    rest_plan,
    rest_run,
    store_routes,
)
from airflow_recovery.api_server import app as app_module
from airflow_recovery.api_server import journals as journals_module
from airflow_recovery.api_server.compare_and_clear import RunMissing
from airflow_recovery.api_server.dag_runs import RunRow
from airflow_recovery.api_server.places import Places
from airflow_recovery.api_server.shared_reads import KeptDocuments, SharedReads
from airflow_recovery.api_server.silence import Silence
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore, open_store
from airflow_recovery.testing.patience import HANG_S

DAG, KEY, RUN = "flights", "date-2026-01-01T000000Z", "scheduled__2026-01-01T00:00:00+00:00"
DIAMOND = {"raw": (), "by_route": ("raw",), "by_carrier": ("raw",), "busiest": ("by_route", "by_carrier")}


class KeptWorld(fakes.World):
    """A `World` whose journal and results are in real stores; each region is a task of the same name."""

    def __init__(self, base: Path, upstream: Mapping[str, tuple[str, ...]], identity: RunIdentity, **more: Any) -> None:
        self.stores = (open_store((base / "journal").as_uri()), open_store((base / "results").as_uri()))
        self.identity = identity
        super().__init__(upstream, **more)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.journal_store, self.results = self.stores

    def journal(self, process: fakes.Process | None = None, writer: str = "test") -> Journal:
        return super().journal(process, writer).sibling(self.identity, listener=self.listener())

    def keep_events(self, writer: str = "writer") -> None:
        """Write the events so far as one stream."""
        stream = EventWriter(self.journal_store, self.identity, writer)
        for event in self.events:
            stream.record(event)
        self.events.clear()
        assert stream.close().failed is None


class FakeStores:
    """`airflow_recovery.hooks.stores.Stores`."""

    def __init__(self, journal: ObjectStore, results: ObjectStore) -> None:
        self.journal, self.results = journal, results

    def open_location(self, location: str) -> ObjectStore:
        return self.results if location.startswith(self.results.base_uri) else open_store(location)

    def may_open(self, location: str) -> bool:
        return True


class RestWorld:
    """One run, and clients of the API. ``audited``: what is in the audit log, as (user, event, extra)."""

    def __init__(
        self,
        base: Path,
        patch: pytest.MonkeyPatch,
        upstream: Mapping[str, tuple[str, ...]] = DIAMOND,
        *,
        group: str = OPERATORS_GROUP,
        **more: Any,
    ) -> None:
        self.world = KeptWorld(base, upstream, RunIdentity(DAG, KEY, group), **more)
        self.stores = FakeStores(*self.world.stores)
        self.audited: list[tuple[str, str, dict[str, Any]]] = []
        self.otherwise: dict[str, tuple[str, ...]] = {}
        self.run_state = "failed"
        self.deployment: str | None = None
        self.path = f"/dags/{DAG}/runs/{RUN}"
        self.open_the_app(patch)

    def client(self, user: str | None = "admin", **headers: str) -> TestClient:
        told = {"X-User": user} if user is not None else {}
        return TestClient(app_module.app, headers={**told, **headers}, raise_server_exceptions=False)

    def get(self, path: str = f"/dags/{DAG}/runs/{RUN}", user: str | None = "admin", **headers: str) -> Any:
        return self.client(user, **headers).get(path)

    def post(self, path: str, body: Any, user: str | None = "admin", **headers: str) -> Any:
        return self.client(user, **headers).post(f"/dags/{DAG}/runs/{RUN}/{path}", json=body)

    def plan(self, user: str = "admin", **question: Any) -> Any:
        answer = self.post("plan", question, user)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def run_plan(self, plan: dict[str, Any], user: str | None = "admin", **headers: str) -> Any:
        kept = {name: plan[name] for name in ("plan_id", "plan", "tries")}
        return self.post("plan/run", kept, user, **headers)

    def open_the_app(self, patch: pytest.MonkeyPatch) -> None:
        """Let the API's application serve this run, and no other."""
        overrides: dict[Callable[..., Any], Callable[..., Any]] = {
            _get_session: lambda: SimpleNamespace(close=lambda: None),
            get_user: _user,
        }
        for each in (*access.MAY_READ, access.MAY_ACT[0]):
            overrides[each.dependency] = _may_act if each is access.MAY_ACT[0] else _may_read
        patch.setattr(app_module.app, "dependency_overrides", overrides)
        patch.setattr(store_routes, "places", Places(8, by_user=8, by_dag=8, wait_s=HANG_S))
        patch.setattr(rest_run, "shared_reads", SharedReads())
        patch.setattr(rest_run, "kept_documents", KeptDocuments())
        patch.setattr(rest_run, "create_session", lambda **options: nullcontext(SimpleNamespace()))
        patch.setattr(journals_module, "silence", Silence())
        patch.setattr(journals_module, "_large", OrderedDict())
        # A store of a test is known to this process alone.
        patch.setattr(journals_module, "READS_LARGE_RUNS_APART", False)
        for module in (rest_run, rest_plan, rest_changes):
            patch.setattr(module, "find_dag_run", self._find)
        for module in (rest_run, rest_plan):
            patch.setattr(module, "observe", self._observe)
        patch.setattr(journals_module, "deployment_stores", lambda: self.stores)
        patch.setattr(journals_module, "deployment_name", lambda: self.deployment)
        for module in (rest_plan, rest_changes):
            patch.setattr(module, "audit", self._audit)
        patch.setattr(rest_run, "newest_dag_runs", lambda session, dag, most: [self._find(session, dag, RUN)])
        patch.setattr(rest_run, "may_act", lambda user, dag: user.get_name() == "admin")
        patch.setattr(rest_plan, "clear", self._clear)
        patch.setattr(rest_plan, "declared_otherwise", lambda session, dag_id, run_id: self.otherwise)

    def _find(self, session: Any, dag_id: str, run_id: str) -> RunRow:
        if (dag_id, run_id) != (DAG, RUN):
            raise RunMissing(f"DAG {dag_id!r} has no run {run_id!r}.")
        return RunRow(RUN, KEY, self.run_state, "2026-01-02T00:00:00+00:00")

    def _observe(self, session: Any, dag_id: str, run_id: str) -> Observation:
        return self.world.airflow.observe()

    def _clear(self, session: Any, dag_id: str, run_id: str, request: ClearRequest) -> ClearResult:
        return self.world.airflow.compare_and_clear(request, "nobody")

    def _audit(self, session: Any, who: str, event: str, dag_id: str, run_id: str, extra: dict[str, Any]) -> None:
        self.audited.append((who, event, extra))


def _user(request: Request) -> Any:
    name = request.headers.get("x-user") or request.cookies.get("user")
    if name is None:
        raise HTTPException(401, "Not authenticated")
    return SimpleNamespace(get_name=lambda: name)


def _may_read(request: Request) -> None:
    if _user(request).get_name() not in ("admin", "viewer"):
        raise HTTPException(403, "Forbidden")


def _may_act(request: Request) -> None:
    if _user(request).get_name() != "admin":
        raise HTTPException(403, "Forbidden")
