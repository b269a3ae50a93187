"""Which Airflow tasks stand for regions, which of them were cleared, and how a user clears them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_recovery.model.keys import TaskKey
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.region_plan import RegionPlan


@dataclass(frozen=True)
class Cleared:
    """``clear``: the tasks to clear. ``cleared``: those that were cleared; `None` if a user has to clear them."""

    airflow_run_id: str
    clear: list[str]
    cleared: Sequence[str] | None

    def text(self, identity: RunIdentity) -> str:
        """What was cleared, or how a user clears it."""
        if self.cleared is None:
            return clear_text(identity, self.airflow_run_id, self.clear)
        return f"Cleared: {', '.join(self.cleared) or 'nothing'}."


def task_keys(identity: RunIdentity, regions: Iterable[RegionPlan]) -> list[str]:
    """The tasks of ``regions``: ``group.region``, and ``group.region|3`` for a subtask; each once."""
    return list(dict.fromkeys(str(TaskKey.of_region(region, identity.group_id)) for region in regions))


def clear_text(identity: RunIdentity, run_id: str, keys: Sequence[str]) -> str:
    """The two ways to clear ``keys`` by hand: Airflow's command line, and its REST API."""
    lines = ["There is no way into Airflow from here: the restart is pending until its tasks are cleared. Either:", ""]
    command = _command(identity, keys)
    if command is not None:
        lines += [f"  {command}", "", "or, on the API server:", ""]
    tasks = [TaskKey.parse(key) for key in keys]
    ids = [task.task_id if task.map_index < 0 else [task.task_id, task.map_index] for task in tasks]
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ids, "only_failed": False, "reset_dag_runs": True}
    path = f"/api/v2/dags/{identity.dag_id}/clearTaskInstances"
    return "\n".join([*lines, f"  POST {path}", f"  {json.dumps(body)}"])


def _command(identity: RunIdentity, keys: Sequence[str]) -> str | None:
    """``airflow tasks clear`` knows logical dates only, and no map indexes: clearing all subtasks is harmless."""
    match = re.fullmatch(r"date-(.+T\d{2})(\d{2})(\d{2}.*)Z", identity.run_key)
    if match is None:
        return None
    date = f"{match[1]}:{match[2]}:{match[3]}+00:00"
    tasks = "|".join(re.escape(task_id) for task_id in dict.fromkeys(TaskKey.parse(key).task_id for key in keys))
    words = ["airflow", "tasks", "clear", identity.dag_id, "--task-regex", f"^({tasks})$"]
    return shlex.join([*words, "--start-date", date, "--end-date", date, "--yes"])
