"""How many slots a pool has: what streaming regions, which run at the same time, need to know. API server only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import exists, select

from airflow_recovery.airflow_compat import Pool, TaskInstance

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from airflow_recovery.airflow_compat import TaskScope


def pool_slots(session: Session, scope: TaskScope, name: str) -> int | None:
    """How many slots the pool has: -1 without limit; `None` where there is none that the caller's run uses.

    What pools other teams have, and how large they are, is no task's business.
    """
    used = exists().where(
        TaskInstance.dag_id == scope.dag_id, TaskInstance.run_id == scope.run_id, TaskInstance.pool == name
    )
    slots: int | None = session.scalar(select(Pool.slots).where(Pool.pool == name, used))
    return slots
