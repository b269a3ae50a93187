"""Which clears were recovery's own, so that a clear by a person can be told from them. API server only.

Airflow gives fresh retries to whatever is cleared, whoever cleared it. A person who clears a task means "go on";
recovery, which clears a producer, does not mean that what failed so far is forgiven. So each of its clears is noted
in the cleared task's own state store, in the same transaction: the try that it ended, and ``max_tries`` before it.
`airflow_recovery.task.run_context.retry_grant` reads it there.

Airflow's own store is written. Where a deployment keeps another backend, nothing is found, and a clear by recovery
starts a count over like one by a person; what is lost again and again is limited all the same, by Airflow's retries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sqlalchemy import delete, insert, select

from airflow_recovery.airflow_compat import DagRun, TaskInstance, TaskStateStoreModel
from airflow_recovery.attempt.clear_protocol import (
    CLEARS_KEY,
    MAX_CLEARS,
    RecoveryClear,
    clears_from_json,
    clears_to_json,
)

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def note_clears(session: Session, run: DagRun, instances: Sequence[TaskInstance]) -> None:
    """Note that recovery is about to clear ``instances`` of ``run``. Before the clear, which changes ``max_tries``.

    Three statements however many they are, since the run is locked meanwhile. Only who has locked the run writes here.
    """
    model = TaskStateStoreModel
    rows = session.execute(
        select(model.id, model.task_id, model.map_index, model.value).where(
            model.dag_run_id == run.id, model.key == CLEARS_KEY
        )
    )
    before = {(task_id, map_index): (row_id, value) for row_id, task_id, map_index, value in rows}
    replaced, written, now = [], [], datetime.now(timezone.utc)
    for instance in instances:
        row_id, text = before.get((instance.task_id, instance.map_index), (None, None))
        if row_id is not None:
            replaced.append(row_id)
        clears = (
            *(clears_from_json(json.loads(text)) if text else ()),
            RecoveryClear(instance.try_number, instance.max_tries),
        )
        written.append(
            {
                "dag_run_id": run.id,
                "dag_id": run.dag_id,
                "run_id": run.run_id,
                "task_id": instance.task_id,
                "map_index": instance.map_index,
                "key": CLEARS_KEY,
                "value": json.dumps(clears_to_json(clears[-MAX_CLEARS:])),
                "updated_at": now,
            }
        )
    if replaced:
        session.execute(delete(model).where(model.id.in_(replaced)), execution_options={"synchronize_session": False})
    session.execute(insert(model), written)
