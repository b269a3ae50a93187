"""The size of a pool, as the API server answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from airflow.models.pool import Pool
from airflow.state import TaskScope
from sqlalchemy import create_engine, text, true
from sqlalchemy.orm import Session

from airflow_recovery.api_server import pools
from airflow_recovery.api_server.state_backend import answer
from airflow_recovery.attempt.clear_protocol import Answer, Call, Operation
from airflow_recovery.model.codec import from_json, to_json

SCOPE = TaskScope(dag_id="d", run_id="r", task_id="t", map_index=-1)


@pytest.fixture
def session() -> Iterator[Session]:
    """The run of the caller has tasks in two pools; a third one is another team's."""
    engine = create_engine("sqlite://")
    Pool.__table__.create(engine)
    with Session(engine) as found:
        for name, slots in (("own", 3), ("endless", -1), ("theirs", 40)):
            found.add(Pool(pool=name, slots=slots, include_deferred=False))
        found.flush()
        found.execute(text("CREATE TABLE task_instance (dag_id TEXT, run_id TEXT, pool TEXT)"))
        for row in (("d", "r", "own"), ("d", "r", "endless"), ("d", "other", "theirs"), ("x", "r", "theirs")):
            found.execute(text("INSERT INTO task_instance VALUES (:a, :b, :c)"), dict(zip("abc", row, strict=True)))
        yield found


def asked(session: Session, name: str) -> Answer:
    call = Call("c", Operation.POOL, text=name)
    return from_json(Answer, json.loads(answer(session, SCOPE, json.dumps(to_json(call)))))


def test_the_slots_of_a_pool_that_the_callers_run_uses(session: Session) -> None:
    assert [asked(session, name).slots for name in ("own", "endless", "nobody's")] == [3, -1, None]


def test_how_large_the_pool_of_another_team_is_no_task_is_told(session: Session) -> None:
    assert asked(session, "theirs").slots is None


def test_control_without_the_look_at_the_callers_run_it_is_told(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "exists", lambda: SimpleNamespace(where=lambda *given: true()))
    assert asked(session, "theirs").slots == 40


def test_calls_with_a_text_survive_json() -> None:
    for call in (
        Call("c", Operation.POOL, text="own"),
        Call("c", Operation.NOTE, text="recovery: 12 records"),
    ):
        assert Call.read(to_json(call)) == call
    # What an older server is sent for the old calls has not changed.
    assert to_json(Call("c", Operation.OBSERVE)) == {"call_id": "c", "operation": "observe", "request": None}


def test_an_answer_with_slots_survives_json() -> None:
    for found in (Answer("c", slots=3), Answer("c", slots=0), Answer("c")):
        assert from_json(Answer, to_json(found)) == found
