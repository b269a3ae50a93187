"""Whether Airflow still has a DAG: what a task needs to know that may be its new name. API server only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_recovery.airflow_compat import DagModel

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def has_dag(session: Session, dag_id: str) -> bool:
    """Whether a file has the DAG. Airflow keeps the row of a DAG that has left its file, and marks it as stale."""
    return bool(session.scalar(select(DagModel.dag_id).where(DagModel.dag_id == dag_id, ~DagModel.is_stale)))
