"""The note of a task instance: what recovery did, in one line, where people look. API server only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select

from airflow_recovery.airflow_compat import TaskInstance
from airflow_recovery.attempt.clear_protocol import NOTE_SIGN
from airflow_recovery.hooks.masking import mask_secrets

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from airflow_recovery.airflow_compat import TaskScope


def leave_note(session: Session, scope: TaskScope, note: str) -> None:
    """Give the task instance ``note``, unless a person has written one. Does not commit.

    Masked once more: whoever sent it may be of a version that does not.
    """
    instance = session.scalar(
        select(TaskInstance).where(
            TaskInstance.dag_id == scope.dag_id,
            TaskInstance.run_id == scope.run_id,
            TaskInstance.task_id == scope.task_id,
            TaskInstance.map_index == scope.map_index,
        )
    )
    if instance is not None and (not instance.note or instance.note.startswith(NOTE_SIGN)):
        instance.note = mask_secrets(note)
        session.flush()
