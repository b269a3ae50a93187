"""What Airflow has of a DAG, over real tables of its models: whether it is there, and what it declares otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from airflow_recovery.airflow_compat import SerializedDagModel, TaskScope
from airflow_recovery.api_server.dags import declared_otherwise
from airflow_recovery.api_server.state_backend import answer
from airflow_recovery.attempt.clear_protocol import Answer, Call, Operation
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.operators import RecoverableSparkSubmitOperator

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


def dag_of(*, argument: str = "1", rule: str = "all_success", output: str = "s3://lake/report", **more: Any) -> Any:
    with DAG("d", schedule=None) as dag:
        clean = RecoverableSparkSubmitOperator(
            task_id="clean",
            application="clean.py",
            outputs=["cleaned"],
            application_args=["{output:cleaned}", argument],
            **more,
        )
        RecoverableSparkSubmitOperator(
            task_id="report",
            application="report.py",
            outputs={"report": output},
            inputs={"cleaned": clean.result("cleaned", optional=True)},
            trigger_rule=rule,
        )
    return DagSerialization.to_dict(dag)


class Deployed:
    """Versions of a DAG in Airflow's tables, and one run of it, whose tasks were tried with the first of them."""

    def __init__(self, session: Session, bundle_version: str | None = None) -> None:
        self._session = session
        SerializedDagModel.__table__.create(session.connection())
        session.execute(text("CREATE TABLE dag_run (dag_id TEXT, run_id TEXT, bundle_version TEXT)"))
        session.execute(text("INSERT INTO dag_run VALUES ('d', 'r', :version)"), {"version": bundle_version})
        session.execute(
            text("CREATE TABLE task_instance (dag_id TEXT, run_id TEXT, task_id TEXT, dag_version_id CHAR)")
        )
        first = self.deploy(1, dag_of())
        for task in ("clean", "report", "removed since"):
            given = {"task": task, "version": first.hex}
            session.execute(text("INSERT INTO task_instance VALUES ('d', 'r', :task, :version)"), given)

    def deploy(self, hour: int, data: Any) -> UUID:
        version, moment = uuid4(), datetime(2026, 1, 1, hour, tzinfo=timezone.utc)
        row = {"id": uuid4(), "dag_id": "d", "dag_hash": str(hour), "data": data, "dag_version_id": version}
        self._session.execute(
            SerializedDagModel.__table__.insert().values(**row, created_at=moment, last_updated=moment)
        )
        return version

    def otherwise(self) -> dict[str, tuple[str, ...]]:
        return declared_otherwise(self._session, "d", "r")


def test_what_a_deploy_declares_otherwise_is_known_before_its_tasks_look(session: Session) -> None:
    deployed = Deployed(session)
    assert deployed.otherwise() == {}
    deployed.deploy(2, dag_of(argument="2", rule="all_done", output="s3://lake/elsewhere", env_vars={"A": "1"}))
    assert deployed.otherwise() == {"clean": ("application_args",), "report": ("trigger_rule", "outputs")}
    deployed.deploy(3, dag_of())  # a rollback
    assert deployed.otherwise() == {}


def test_a_run_that_keeps_the_version_of_its_bundle_is_not_concerned(session: Session) -> None:
    deployed = Deployed(session, bundle_version="2a973a7b")
    deployed.deploy(2, dag_of(argument="2"))
    assert deployed.otherwise() == {}
