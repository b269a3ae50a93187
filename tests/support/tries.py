"""One try of an operator in this process: Airflow's context is made here, no Airflow process runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.sdk.bases.operator import ExecutorSafeguard

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.local import LocalStore

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
    facts = {"dag_id": "d", "run_id": "r", "logical_date": DATE, "partition_key": None, "conf": {}}
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
    """One try of such a copy."""
    task.render_template_fields(context)
    sentinel = {f"{type(task).__name__}__sentinel": ExecutorSafeguard.sentinel_value}
    answer: dict[str, Any] = task.execute(context=context, **sentinel)
    return answer


def journal_in(folder: Path, group_id: str) -> Journal:
    identity = RunIdentity("d", RUN_KEY, group_id)
    return Journal(LocalStore(f"file://{folder}/journal"), identity, writer="test")


def state_in(folder: Path, group_id: str, *regions: str) -> RunState:
    journal = journal_in(folder, group_id)
    return journal.load(journal.list(regions))


def submissions(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
