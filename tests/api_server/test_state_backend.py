"""Calls that are wrong in themselves are answered: an error of the server is repeated by Airflow's client, for nothing.

In a real API server: `tests/testing_airflow/test_clear_clients_airflow.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from airflow.state import TaskScope
from sqlalchemy import Integer, Text, column, create_engine, select, table, text, tuple_
from sqlalchemy.orm import Session

from airflow_recovery.api_server import compare_and_clear
from airflow_recovery.api_server.state_backend import answer
from airflow_recovery.attempt.clear_protocol import Answer
from airflow_recovery.model.codec import from_json
from airflow_recovery.model.keys import MAX_MAP_INDEX, TaskKey
from airflow_recovery.testing.patience import HANG_S

SCOPE = TaskScope(dag_id="d", run_id="r", task_id="t", map_index=-1)
ODD = ["P|1" + "0" * 30, f"P|{MAX_MAP_INDEX + 1}", "P|-1", "P|", "P|x", "P|\u0663", "P| 3", "P|1|2", "P|1e3"]


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A database that is asked for the keys of a request, and has none."""
    instances = table("ti", column("task_id", Text), column("map_index", Integer))
    asked: list[Any] = []

    def found(dag_id: str, run_id: str, keys: Any) -> Any:
        pairs = [(task.task_id, task.map_index) for task in map(TaskKey.parse, keys)]
        asked.extend(pairs)
        return select(instances.c.task_id).where(tuple_(instances.c.task_id, instances.c.map_index).in_(pairs))

    monkeypatch.setattr(compare_and_clear, "lock_run", lambda *given: None)
    monkeypatch.setattr(compare_and_clear, "instances_of", found)
    return asked


def said(call: str) -> Answer:
    with Session(create_engine("sqlite://")) as session:
        session.execute(text("CREATE TABLE ti (task_id TEXT, map_index INTEGER)"))
        return from_json(Answer, json.loads(answer(session, SCOPE, call)))


def clearing(key: str) -> str:
    request = {"producers": {key: "id"}, "consumers": {}, "unblock": False}
    return json.dumps({"call_id": "c", "operation": "clear", "request": request})


@pytest.mark.parametrize("key", ODD)
def test_a_key_that_no_task_can_have_is_refused_by_name(looked_up: list[Any], key: str) -> None:
    found = said(clearing(key))
    assert found.call_id == "c"
    assert "expected a map index from 0 to 2147483647 after the task id" in (found.error or "")
    assert looked_up == []


@pytest.mark.parametrize("key", [f"P|{MAX_MAP_INDEX}", "P|0", "P|007", "P"])
def test_any_other_key_is_looked_up(looked_up: list[Any], key: str) -> None:
    assert said(clearing(key)).error is None
    assert len(looked_up) == 1


def test_control_without_the_look_at_keys_the_database_raises(
    looked_up: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskKey, "parse", lambda key: TaskKey("P", int(key.partition("|")[2])))
    with pytest.raises(OverflowError):
        said(clearing(ODD[0]))


def test_a_call_that_is_nested_too_deep_is_refused() -> None:
    assert said("[" * 100_000).error


@pytest.mark.slow
def test_nothing_of_it_asks_a_store() -> None:
    """It runs in the threads of the Execution API: what waits there keeps the heartbeats of tasks waiting."""
    code = (
        "import sys\n"
        "from airflow_recovery.api_server import compare_and_clear, notes, pools, state_backend\n"
        "print(sorted({'airflow_recovery.api_server.journals', 'airflow_recovery.store.s3'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
