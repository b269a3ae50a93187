"""One try of an operator in this process: Airflow's context is made here, no Airflow process runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.execution_time.xcom import XCom

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.operators import recovering
from airflow_recovery.store.local import LocalStore
from airflow_recovery.task.summary import summary_of

DATE = datetime(2024, 1, 2, tzinfo=timezone.utc)
RUN_KEY = "date-2024-01-02T000000Z"


class TaskStateStore(dict[str, Any]):
    """The task's own state store in an Airflow without our backend.

    A key with a slash is found by none of its answers, as by those of the API server of Airflow 3.3.0.
    """

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return default if "/" in key else super().get(key, default)


def dag_run(**changes: Any) -> SimpleNamespace:
    facts = {
        "dag_id": "d",
        "run_id": "r",
        "run_type": "manual",
        "run_after": DATE,
        "logical_date": DATE,
        "partition_key": None,
        "conf": {},
    }
    return SimpleNamespace(**{**facts, **changes})


def task_context(
    task_id: str = "t",
    *,
    try_number: int = 1,
    params: Any = None,
    states: Mapping[str, str | None] | None = None,
    **run: Any,
) -> Any:
    """What Airflow gives to `execute`, as far as the operators read it. ``states``: of the other tasks."""
    facts = {"dag_id": "d", "run_id": "r", "task_id": task_id, "map_index": -1, "try_number": try_number}
    ti = SimpleNamespace(**facts, id=str(uuid.uuid4()), stats_tags={})
    ti.xcom_push = lambda key, value: XCom.set(
        key=key, value=value, dag_id=ti.dag_id, task_id=task_id, run_id=ti.run_id
    )
    ti.get_task_states = lambda **asked: {"r": dict(states or {})}
    return {
        "ti": ti,
        "dag_run": dag_run(**run),
        "params": {"lake": "/lake"} if params is None else params,
        "data_interval_start": DATE,
        "data_interval_end": DATE,
        "task_state_store": TaskStateStore(),
        "ds": "2024-01-02",
        "ts": DATE.isoformat(),
    }


def run_try(operator: Any, context: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """One try, as Airflow's task runner makes it: a copy of the task, templates rendered, then `execute`."""
    return execute(operator.prepare_for_execution(), context or task_context(operator.task_id, **changes))


def execute(task: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """One try of such a copy. Returns what recovery did, also of an operator that returns a value of its own."""
    summaries: list[dict[str, Any]] = []

    def summary(result: Any) -> dict[str, Any]:
        summaries.append(summary_of(result))
        return summaries[-1]

    with patch.object(recovering, "summary_of", summary):
        answer: Any = xcoms_of(task, context)["return_value"]
    is_own = bool(summaries) and not (isinstance(answer, dict) and "decision" in answer)
    return summaries[-1] if is_own else answer


def xcoms_of(task: Any, context: Mapping[str, Any]) -> dict[str, Any]:
    """What one try of such a copy pushes, its return value included, in an Airflow that has deleted all before."""
    pushed: dict[str, Any] = {}
    task.render_template_fields(context)
    sentinel = {f"{type(task).__name__}__sentinel": ExecutorSafeguard.sentinel_value}
    with patch.object(XCom, "set", lambda key, value, **_: pushed.update({key: value})):
        answer = task.execute(context=context, **sentinel)
    return {**pushed, "return_value": answer}


def journal_in(folder: Path, group_id: str) -> Journal:
    identity = RunIdentity("d", RUN_KEY, group_id)
    return Journal(LocalStore(f"file://{folder}/journal"), identity, writer="test")


def state_in(folder: Path, group_id: str, *regions: str) -> RunState:
    journal = journal_in(folder, group_id)
    return journal.load(journal.list(regions))


def submissions(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
