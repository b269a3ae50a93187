"""What the API server notes of recovery's own clears; in real Airflow: `tests/integration/test_limits.py`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.state import TaskScope

from airflow_recovery.plugins import recovery_clears
from airflow_recovery.plugins.protocol import CLEARS_KEY, MAX_CLEARS, RecoveryClear, clears_from_json, clears_to_json
from airflow_recovery.plugins.recovery_clears import note_clears


class Store(dict[tuple[TaskScope, str], str]):
    """Airflow's own backend, in a dictionary."""

    def read(self, scope: TaskScope, key: str, *, session: Any) -> str | None:
        assert session == "the session"
        return dict.get(self, (scope, key))

    def write(self, scope: TaskScope, key: str, value: str, *, session: Any) -> None:
        assert session == "the session"
        self[scope, key] = value


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()
    monkeypatch.setattr(recovery_clears, "MetastoreBackend", lambda: SimpleNamespace(get=found.read, set=found.write))
    return found


def instance(try_number: int, max_tries: int, map_index: int = -1) -> Any:
    return SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=map_index, try_number=try_number, max_tries=max_tries
    )


def noted(store: Store, map_index: int = -1) -> tuple[RecoveryClear, ...]:
    return clears_from_json(json.loads(store[TaskScope("d", "r", "t", map_index), CLEARS_KEY]))


def test_each_clear_is_added_for_its_own_task_instance(store: Store) -> None:
    note_clears("the session", [instance(2, 12), instance(1, 12, map_index=3)])  # type: ignore[arg-type]
    note_clears("the session", [instance(5, 14)])  # type: ignore[arg-type]
    assert noted(store) == (RecoveryClear(2, 12), RecoveryClear(5, 14))
    assert noted(store, 3) == (RecoveryClear(1, 12),)


def test_the_newest_are_kept(store: Store) -> None:
    for number in range(MAX_CLEARS + 5):
        note_clears("the session", [instance(number, 12 + number)])  # type: ignore[arg-type]
    assert noted(store)[0] == RecoveryClear(5, 17)
    assert len(noted(store)) == MAX_CLEARS


def test_round_trip_and_anything_else_is_nothing() -> None:
    clears = (RecoveryClear(1, 2), RecoveryClear(3, 4))
    assert clears_from_json(clears_to_json(clears)) == clears
    for value in (None, 7, "x", [[1]], [["a", "b"]], {}):
        assert clears_from_json(value) == ()
