"""The transaction of ``rebuild`` over Airflow's own tables: which run it finds, and which task instances it sets.

In real Airflow: `tests/integration/test_rebuild.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from airflow.utils.state import DagRunState
from sqlalchemy import Engine, insert, select
from sqlalchemy.orm import Session

from airflow_recovery.api_server.compare_and_clear import RunMissing
from airflow_recovery.api_server.rebuild import set_finished
from airflow_recovery.attempt.rebuild import RebuildRequest

DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
KEY = "date-2026-01-01T000000Z"


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """Nothing of a test stays."""
    with Session(engine) as session:
        yield session
        session.rollback()


def add_run(session: Session, run_id: str, tasks: dict[str, tuple[str | None, int]], **facts: Any) -> None:
    """A run with task instances by key, each with its state and try number."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

    session.add(DagRun(dag_id="d", run_id=run_id, run_type="manual", state=DagRunState.RUNNING, **facts))
    session.flush()
    for key, (state, tried) in tasks.items():
        task_id, _, index = key.partition("|")
        values = {"task_id": task_id, "map_index": int(index or -1), "state": state, "try_number": tried}
        more = {"id": uuid.uuid4(), "dag_id": "d", "run_id": run_id, "max_tries": 0, "pool": "p", "pool_slots": 1}
        session.execute(insert(TaskInstance).values(**values, **more, span_status="not_started"))


def found(session: Session, run_id: str) -> dict[str, tuple[str | None, str | None]]:
    """State and note of every task instance."""
    from airflow.models.taskinstance import TaskInstance

    rows = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run_id))
    return {row.task_id + (f"|{row.map_index}" if row.map_index >= 0 else ""): (row.state, row.note) for row in rows}


@pytest.mark.slow
def test_only_what_has_never_run_is_set_and_doing_it_again_does_nothing(session: Session) -> None:
    before = {
        "none": (None, 0),
        "scheduled": ("scheduled", 1),
        "mapped|1": (None, 0),
        "mapped|2": (None, 0),
        "cleared": (None, 1),
        "again": ("scheduled", 2),
        "queued": ("queued", 1),
        "running": ("running", 1),
        "retries": ("up_for_retry", 1),
        "failed": ("failed", 1),
        "success": ("success", 1),
        "not asked": (None, 0),
    }
    add_run(session, "r", before, logical_date=DATE)
    asked = {key: f"note of {key}" for key in [*before, "not there"] if key not in ("mapped|2", "not asked")}
    dry = set_finished(session, "d", RebuildRequest(KEY, asked, dry_run=True))
    assert {key: state for key, (state, _) in found(session, "r").items()} == {k: s for k, (s, _) in before.items()}
    done = set_finished(session, "d", RebuildRequest(KEY, asked))
    assert dry == done
    assert (done.run_id, done.done) == ("r", ("none", "scheduled", "mapped|1"))
    assert done.left["cleared"] == "it is cleared, try 1"
    assert done.left["running"] == "it is running, try 1"
    assert "no such task instance" in done.left["not there"]
    after = found(session, "r")
    for key, (state, _) in before.items():
        expected = ("success", f"note of {key}") if key in done.done else (state, None)
        assert after[key] == expected
    again = set_finished(session, "d", RebuildRequest(KEY, asked))
    assert again.done == ()
    assert again.left["none"] == "it is success, try 0"
    assert found(session, "r") == after


@pytest.mark.parametrize(("key", "run_id"), [(KEY, "dated"), ("partition-de-at", "second"), ("run-by-hand", "by-hand")])
def test_the_run_is_found_by_what_the_journal_knows_it_by(session: Session, key: str, run_id: str) -> None:
    add_run(session, "dated", {"a": (None, 0)}, logical_date=DATE)
    add_run(session, "first", {"a": (None, 0)}, partition_key="de-at")
    add_run(session, "second", {"a": (None, 0)}, partition_key="de-at")
    add_run(session, "by-hand", {"a": (None, 0)})
    assert set_finished(session, "d", RebuildRequest(key, {"a": "note"})).run_id == run_id
    assert found(session, run_id)["a"] == ("success", "note")


@pytest.mark.parametrize("key", ["date-2026-01-02T000000Z", "partition-fr", "run-x", "nonsense"])
def test_a_run_that_was_not_made_again_is_asked_for(session: Session, key: str) -> None:
    add_run(session, "dated", {"a": (None, 0)}, logical_date=DATE)
    with pytest.raises(RunMissing, match="Trigger one, then rebuild it"):
        set_finished(session, "d", RebuildRequest(key, {"a": "note"}))


def test_a_run_that_recomputes_is_left_alone(session: Session) -> None:
    conf = {"recovery": {"mode": "recompute", "epoch": 1}}
    add_run(session, "dated", {"a": (None, 0)}, logical_date=DATE, conf=conf)
    with pytest.raises(ValueError, match="asks for recomputing"):
        set_finished(session, "d", RebuildRequest(KEY, {"a": "note"}))
    assert found(session, "dated") == {"a": (None, None)}
