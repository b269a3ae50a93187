"""Airflow's runs, and which journal belongs to each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from airflow_recovery.airflow_compat import DagRun, DagRunState
from airflow_recovery.api_server.compare_and_clear import RunMissing
from airflow_recovery.journal.layout import run_key

if TYPE_CHECKING:
    from sqlalchemy import Row, Select
    from sqlalchemy.orm import Session


@dataclass(frozen=True)
class RunRow:
    """A run as Airflow has it. ``run_key`` names its journal; times are ISO 8601 in UTC."""

    run_id: str
    run_key: str
    state: str | None
    run_after: str | None


def find_dag_run(session: Session, dag_id: str, run_id: str) -> RunRow:
    """The run with this id. Raises `RunMissing`. The caller closes ``session`` before it talks to a store for long."""
    row = session.execute(_columns().where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)).first()
    if row is None:
        raise RunMissing(f"DAG {dag_id!r} has no run {run_id!r}.")
    return _row(row)


def newest_dag_runs(session: Session, dag_id: str, most: int) -> list[RunRow]:
    """At most ``most`` runs of the DAG, the newest first."""
    ordered = _columns().where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(most)
    return [_row(row) for row in session.execute(ordered)]


def live_dag_runs(session: Session, dag_id: str) -> list[RunRow]:
    """The runs of the DAG that have not ended."""
    live = DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING])
    return [_row(row) for row in session.execute(_columns().where(DagRun.dag_id == dag_id, live))]


def _columns() -> Select[Any]:
    return select(DagRun.run_id, DagRun.logical_date, DagRun.partition_key, DagRun.state, DagRun.run_after)


def _row(row: Row[Any]) -> RunRow:
    state = None if row.state is None else DagRunState(row.state).value
    key = run_key(logical_date=_iso(row.logical_date), partition_key=row.partition_key, run_id=row.run_id)
    return RunRow(row.run_id, key, state, _iso(row.run_after))


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(timezone.utc).isoformat()
