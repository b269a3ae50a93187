"""What the API server notes of recovery's own clears; in real Airflow: `tests/integration/test_limits.py`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.state import TaskScope
from airflow.state.metastore import MetastoreBackend
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session

from airflow_recovery.api_server.recovery_clears import note_clears
from airflow_recovery.attempt.clear_protocol import (
    CLEARS_KEY,
    MAX_CLEARS,
    RecoveryClear,
    clears_from_json,
    clears_to_json,
)

RUN: Any = SimpleNamespace(id=7, dag_id="d", run_id="r")
MANY = 1000


class Database:
    """Airflow's own table, and the statements that were sent."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://")
        TaskStateStoreModel.__table__.create(engine)
        self.session = Session(engine)
        self.statements = 0
        event.listen(engine, "before_cursor_execute", self._count)

    def _count(self, *told: Any) -> None:
        self.statements += 1

    def noted(self, map_index: int = -1) -> tuple[RecoveryClear, ...]:
        """As Airflow's own backend reads it for the task."""
        text = MetastoreBackend().get(TaskScope("d", "r", "t", map_index), CLEARS_KEY, session=self.session)
        return clears_from_json(json.loads(text or "null"))


@pytest.fixture
def database() -> Database:
    return Database()


def instance(try_number: int, max_tries: int, map_index: int = -1) -> Any:
    return SimpleNamespace(
        dag_id="d", run_id="r", task_id="t", map_index=map_index, try_number=try_number, max_tries=max_tries
    )


def test_each_clear_is_added_for_its_own_task_instance(database: Database) -> None:
    note_clears(database.session, RUN, [instance(2, 12), instance(1, 12, map_index=3)])
    note_clears(database.session, RUN, [instance(5, 14)])
    assert database.noted() == (RecoveryClear(2, 12), RecoveryClear(5, 14))
    assert database.noted(3) == (RecoveryClear(1, 12),)


def test_what_a_task_keeps_under_other_names_stays(database: Database) -> None:
    database.session.add(
        TaskStateStoreModel(dag_run_id=7, dag_id="d", run_id="r", task_id="t", map_index=-1, key="own", value="1")
    )
    for number in (1, 2):
        note_clears(database.session, RUN, [instance(number, 12)])
    assert MetastoreBackend().get(TaskScope("d", "r", "t"), "own", session=database.session) == "1"


def test_the_newest_are_kept(database: Database) -> None:
    for number in range(MAX_CLEARS + 5):
        note_clears(database.session, RUN, [instance(number, 12 + number)])
    assert database.noted()[0] == RecoveryClear(5, 17)
    assert len(database.noted()) == MAX_CLEARS


@pytest.mark.parametrize("clears", [1, 2])
def test_under_the_runs_lock_many_tasks_are_noted_with_a_few_statements(database: Database, clears: int) -> None:
    tasks = [instance(1, 12, map_index) for map_index in range(MANY)]
    for _ in range(clears):
        database.statements = 0
        note_clears(database.session, RUN, tasks)
        assert database.statements <= 5
    assert [len(database.noted(each)) for each in (0, MANY - 1)] == [clears, clears]


@pytest.mark.slow
def test_control_task_by_task_every_task_has_statements_of_its_own(database: Database) -> None:
    """As Airflow's backend offers it: the caller of a clear of 10,000 tasks gives up before they are noted."""
    for number in range(MANY):
        MetastoreBackend().get(TaskScope("d", "r", "t", number), CLEARS_KEY, session=database.session)
    assert database.statements >= MANY


def test_round_trip_and_anything_else_is_nothing() -> None:
    clears = (RecoveryClear(1, 2), RecoveryClear(3, 4))
    assert clears_from_json(clears_to_json(clears)) == clears
    unusable: tuple[Any, ...] = (None, 7, "x", [[1]], [["a", "b"]], {})
    for value in unusable:
        assert clears_from_json(value) == ()
