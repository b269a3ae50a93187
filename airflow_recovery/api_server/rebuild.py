"""Set the finished tasks of a re-created run to success, in one transaction. API server, or its database.

As `airflow_recovery.api_server.compare_and_clear`, it decides nothing, uses the caller's session, and does not commit.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_recovery.airflow_compat import DagRun, TaskInstanceState
from airflow_recovery.api_server.compare_and_clear import RunMissing, instances_of, key_of, lock_run, state_of
from airflow_recovery.attempt.clear_protocol import MAX_NOTE
from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from airflow_recovery.airflow_compat import TaskInstance

_DATE = re.compile(r"date-(.+T\d{2})(\d{2})(\d{2}.*)Z")
_NOT_BEGUN = {None: 0, "scheduled": 1}
"""State -> the try number of a task instance that has never run: the scheduler counts a try when it schedules it."""


def set_finished(session: Session, dag_id: str, request: RebuildRequest) -> Rebuilt:
    """Each task that is named, if it has never run in this run and nobody is about to start it; with its note.

    Nothing else is touched, so that doing it again does nothing. Raises `RunMissing` where there is no run of that key,
    and `ValueError` where the run asks for recomputing.
    """
    run_id = run_of_key(session, dag_id, request.run_key)
    run = lock_run(session, dag_id, run_id)
    asked = (run.conf or {}).get("recovery")
    if isinstance(asked, dict) and asked.get("mode") == "recompute":
        raise ValueError(f"run {run_id!r} of DAG {dag_id!r} asks for recomputing: everything in it runs again")
    scalars = {key_of(scalar): scalar for scalar in session.scalars(instances_of(dag_id, run_id, request.notes))}
    done, left = [], {}
    for key, note in request.notes.items():
        why = _why_left(scalars.get(key))
        if why is not None:
            left[key] = why
            continue
        done.append(key)
        if not request.dry_run:
            scalars[key].note = note[:MAX_NOTE]
            scalars[key].set_state(TaskInstanceState.SUCCESS, session=session)
    session.flush()
    return Rebuilt(run_id, tuple(done), left)


def _why_left(instance: TaskInstance | None) -> str | None:
    if instance is None:
        return "the run has no such task instance: not mapped yet (rebuild again when it is), or renamed"
    state = state_of(instance)
    if instance.try_number > _NOT_BEGUN.get(state, -1):
        return f"it is {state or 'cleared'}, try {instance.try_number}"
    return None


def run_of_key(session: Session, dag_id: str, run_key: str) -> str:
    """The run id; of several runs of one asset partition, that of the newest. Raises `RunMissing`."""
    runs = select(DagRun.run_id).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(1)
    kind, _, name = run_key.partition("-")
    dated = _DATE.fullmatch(run_key)
    run_id: Any = None
    if dated is not None:
        moment = datetime.fromisoformat(f"{dated[1]}:{dated[2]}:{dated[3]}+00:00")
        run_id = session.scalar(runs.where(DagRun.logical_date == moment))
    elif kind == "partition":
        run_id = session.scalar(runs.where(DagRun.partition_key == name))
    elif kind == "run":
        run_id = session.scalar(runs.where(DagRun.run_id == name))
    if run_id is None:
        raise RunMissing(
            f"Expected DAG {dag_id!r} to have a run of {run_key}, found none. Trigger one, then rebuild it."
        )
    return str(run_id)
