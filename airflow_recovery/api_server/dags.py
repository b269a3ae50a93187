"""Read Airflow's records of a DAG: whether a file still has it, and what it declares. API server only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_recovery.airflow_compat import DagModel, DagRun, SerializedDagModel, TaskInstance
from airflow_recovery.story.deploy_impact import TRIGGER_RULE

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_CLASS = ("task_type", "_task_module")
_NOT_COMPARED = frozenset({"env_vars"})
"""Templated fields that are in no fingerprint."""


def has_dag(session: Session, dag_id: str) -> bool:
    """Whether a file has the DAG. Airflow keeps the row of a DAG that has left its file, and marks it as stale."""
    return bool(session.scalar(select(DagModel.dag_id).where(DagModel.dag_id == dag_id, ~DagModel.is_stale)))


def declared_otherwise(session: Session, dag_id: str, run_id: str) -> dict[str, tuple[str, ...]]:
    """Return which declarations of a run's tasks have changed since their last try, by task id.

    Compares ``class``, `TRIGGER_RULE` and templated fields, unrendered. Airflow stores no other arguments, no code and
    no local files. Empty for a run that keeps its bundle version, because a clear runs that version again.
    """
    of_run = DagRun.dag_id == dag_id, DagRun.run_id == run_id
    newest = session.scalar(
        select(SerializedDagModel)
        .where(SerializedDagModel.dag_id == dag_id)
        .order_by(SerializedDagModel.created_at.desc())
        .limit(1)
    )
    if newest is None or session.scalar(select(DagRun.bundle_version).where(*of_run)) is not None:
        return {}
    columns = select(TaskInstance.task_id, TaskInstance.dag_version_id).distinct()
    rows = session.execute(columns.where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id))
    earlier = [(task, version) for task, version in rows if version not in (None, newest.dag_version_id)]
    if not earlier:
        return {}
    versions = {version for _, version in earlier}
    chosen = select(SerializedDagModel).where(SerializedDagModel.dag_version_id.in_(versions))
    declared = {str(each.dag_version_id): _operators(each.data) for each in session.scalars(chosen)}
    today = _operators(newest.data)
    found: dict[str, tuple[str, ...]] = {}
    for task_id, version in earlier:
        before, now = declared.get(str(version), {}).get(task_id), today.get(task_id)
        if before is not None and now is not None and (differing := tuple(_differing(before, now))):
            found[task_id] = differing
    return found


def _operators(data: Any) -> dict[str, Mapping[str, Any]]:
    return {each["__var"]["task_id"]: each["__var"] for each in data["dag"]["tasks"]}


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[str]:
    if any(before.get(name) != now.get(name) for name in _CLASS):
        yield "class"
    fields = dict.fromkeys([TRIGGER_RULE, *before.get("template_fields", ()), *now.get("template_fields", ())])
    yield from (name for name in fields if name not in _NOT_COMPARED and before.get(name) != now.get(name))
