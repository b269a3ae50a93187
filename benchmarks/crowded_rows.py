"""Put runs and task instances into Airflow's database: ``python crowded_rows.py``, with their description on stdin.

``[{"dag_id", "run_id", "state", "tasks": [[task id, map index, state, id], ...]}, ...]``. In the environment of the
Airflow; no scheduler is needed.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

LOGICAL_DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)


def main() -> None:
    """Write the rows of standard input."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import insert

    runs: list[dict[str, Any]] = json.load(sys.stdin)
    with create_session(scoped=False) as session:
        for run in runs:
            of_run = {"dag_id": run["dag_id"], "run_id": run["run_id"]}
            row = {**of_run, "state": run["state"], "run_type": "manual", "logical_date": LOGICAL_DATE}
            session.execute(insert(DagRun.__table__), [{**row, "run_after": LOGICAL_DATE}])
            tasks = [
                {
                    **of_run,
                    "id": UUID(ti_id),
                    "task_id": task_id,
                    "map_index": map_index,
                    "state": state,
                    "try_number": 1,
                    "pool": "default_pool",
                }
                for task_id, map_index, state, ti_id in run["tasks"]
            ]
            session.execute(insert(TaskInstance.__table__), tasks)


if __name__ == "__main__":
    main()
