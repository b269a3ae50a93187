"""The size of a pool, as the API server answers it."""

from __future__ import annotations

import json

from airflow.models.pool import Pool
from airflow.state import TaskScope
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from airflow_recovery.plugins.protocol import Answer, Call, Operation
from airflow_recovery.plugins.state_backend import answer

SCOPE = TaskScope(dag_id="d", run_id="r", task_id="t", map_index=-1)


def asked(session: Session, name: str) -> Answer:
    call = Call("c", Operation.POOL, text=name)
    return Answer.from_json(json.loads(answer(session, SCOPE, json.dumps(call.to_json()))))


def test_the_slots_of_a_pool() -> None:
    engine = create_engine("sqlite://")
    Pool.__table__.create(engine)
    with Session(engine) as session:
        session.add(Pool(pool="own", slots=3, include_deferred=False))
        session.add(Pool(pool="endless", slots=-1, include_deferred=False))
        session.flush()
        assert [asked(session, each).slots for each in ("own", "endless", "nobody's")] == [3, -1, None]


def test_calls_with_a_text_survive_json() -> None:
    for call in (
        Call("c", Operation.POOL, text="own"),
        Call("c", Operation.NOTE, text="recovery: 12 records"),
    ):
        assert Call.from_json(call.to_json()) == call
    # What an older server is sent for the old calls has not changed.
    assert Call("c", Operation.OBSERVE).to_json() == {"call_id": "c", "operation": "observe", "request": None}


def test_an_answer_with_slots_survives_json() -> None:
    for found in (Answer("c", slots=3), Answer("c", slots=0), Answer("c")):
        assert Answer.from_json(found.to_json()) == found
