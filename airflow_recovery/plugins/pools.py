"""How many slots a pool has: what stages that run at the same time need to know. API server only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.models.pool import Pool
from sqlalchemy import select

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def pool_slots(session: Session, name: str) -> int | None:
    """How many slots the pool has: -1 without limit, `None` where there is no such pool."""
    found: int | None = session.scalar(select(Pool.slots).where(Pool.pool == name))
    return found
