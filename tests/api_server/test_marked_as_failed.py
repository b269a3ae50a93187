"""Whether a failed task failed by itself or was marked, as Airflow's audit log has it (fault 242).

In real Airflow: `tests/integration/test_runs_with_history.py`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.log import Log
from airflow_tables import engine  # noqa: F401 - a fixture
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from airflow_recovery.api_server.compare_and_clear import marked_as_failed


def instance(task_id: str, try_number: int = 1, map_index: int = -1) -> Any:
    return SimpleNamespace(
        dag_id="d", run_id="r", task_id=task_id, map_index=map_index, try_number=try_number, state="failed"
    )


CASES: dict[str, tuple[list[tuple[str, int]], bool]] = {
    "it failed by itself": ([("running", 1), ("failed", 1)], False),
    "after a success": ([("running", 1), ("success", 1)], True),
    "while it ran": ([("running", 1)], True),
    "while it waited for its retry": ([("running", 1), ("up_for_retry", 1)], True),
    "its second try failed by itself": ([("running", 1), ("up_for_retry", 1), ("running", 2), ("failed", 2)], False),
    "it was stuck in the queue before its second try": ([("running", 1), ("up_for_retry", 1), ("other", 2)], False),
    "the log was deleted": ([], False),
    "it was marked as a success, and then as failed": ([("running", 1), ("failed", 1), ("success", 1)], True),
}


@pytest.mark.parametrize("case", CASES)
def test_fault_242_the_last_state_that_the_present_try_came_to_by_itself_decides(engine: Engine, case: str) -> None:  # noqa: F811
    entries, is_marked = CASES[case]
    tries = 2 if any(number == 2 for _, number in entries) else 1
    with Session(engine) as session:
        for event, number in entries:
            session.add(Log(event=event, dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=number))
            session.add(Log(event="failed", dag_id="d", run_id="other", task_id="t", map_index=-1, try_number=number))
        session.flush()
        found = marked_as_failed(session, [instance("t", tries), instance("t", tries, 3)])
        session.rollback()
    assert found == ({"t"} if is_marked else frozenset())
