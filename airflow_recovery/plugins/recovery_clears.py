"""Which clears were recovery's own, so that a clear by a person can be told from them. API server only.

Airflow gives fresh retries to whatever is cleared, whoever cleared it. A person who clears a task means "go on";
recovery which wakes a producer does not mean that what failed so far is forgiven. Each of its clears is therefore noted
in the cleared task's own state store, in the same transaction: the try that it ended, and ``max_tries`` before it.
`airflow_recovery.operators.run_context.retry_grant` reads it there.

Airflow's own store is written. Where a deployment keeps another backend, nothing is found, and a clear by recovery
begins a count anew like one by a person; what is lost again and again is limited all the same, by Airflow's retries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.models.taskinstance import TaskInstance
from airflow.state import TaskScope
from airflow.state.metastore import MetastoreBackend

from airflow_recovery.plugins.protocol import CLEARS_KEY, MAX_CLEARS, RecoveryClear, clears_from_json, clears_to_json

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def note_clears(session: Session, instances: Sequence[TaskInstance]) -> None:
    """Note that recovery is about to clear ``instances``. Before the clear, which changes ``max_tries``."""
    store = MetastoreBackend()
    for each in instances:
        scope = TaskScope(each.dag_id, each.run_id, each.task_id, each.map_index)
        text = store.get(scope, CLEARS_KEY, session=session)
        before = clears_from_json(json.loads(text)) if text else ()
        noted = (*before, RecoveryClear(each.try_number, each.max_tries))[-MAX_CLEARS:]
        store.set(scope, CLEARS_KEY, json.dumps(clears_to_json(noted)), session=session)
