"""Whether Airflow still has a DAG, as a task is told that may be its new name: over a real table of its models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from airflow_recovery.airflow_compat import TaskScope
from airflow_recovery.api_server.state_backend import answer
from airflow_recovery.attempt.clear_protocol import Answer, Call, Operation
from airflow_recovery.model.codec import from_json, to_json

SCOPE = TaskScope(dag_id="d", run_id="r", task_id="t", map_index=-1)


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    with Session(engine) as found:
        found.execute(text("CREATE TABLE dag (dag_id TEXT, is_stale BOOLEAN)"))
        for row in (("there", False), ("gone", True)):
            found.execute(text("INSERT INTO dag VALUES (:a, :b)"), dict(zip("ab", row, strict=True)))
        yield found


def asked(session: Session, name: str) -> Any:
    call = Call("c", Operation.DAG, text=name)
    return from_json(Answer, json.loads(answer(session, SCOPE, json.dumps(to_json(call))))).has_dag


def test_a_dag_that_has_left_its_file_is_not_there(session: Session) -> None:
    assert [asked(session, name) for name in ("there", "gone", "never")] == [True, False, False]


def test_the_question_and_its_answer_survive_json() -> None:
    call = Call("c", Operation.DAG, text="sales")
    assert Call.read(to_json(call)) == call
    for found in (Answer("c", has_dag=True), Answer("c", has_dag=False)):
        assert from_json(Answer, to_json(found)) == found
