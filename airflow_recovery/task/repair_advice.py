"""What the log of a task that has failed for good ends with: the command and the link that repair the run."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from typing import Any

from airflow_recovery.task.links import tab_url

log = logging.getLogger(__name__)


def end_log_with_advice(context: Mapping[str, Any]) -> None:
    """Have the log of this try, which fails for good, end with `tell_how_to_repair`.

    Not declared in the DAG: for a task with a callback the scheduler of Airflow 3.3 forgets that a person has cleared
    it at its work (``max_tries`` stays), and the try that the person has ended would count as a failure.
    """
    task = getattr(context["ti"], "task", None) or context.get("task")
    if task is not None:
        task.on_failure_callback = [*task.on_failure_callback, tell_how_to_repair]


def tell_how_to_repair(context: Mapping[str, Any]) -> None:
    """A callback for ``on_failure_callback``. Airflow calls it last, behind the traceback."""
    instance = context["ti"]
    dag_id, run_id = str(instance.dag_id), str(instance.run_id)
    group = getattr(context.get("task"), "group_id", None)
    run = shlex.join([dag_id, run_id, *(["--group", group] if group else [])])
    log.info(
        "What would run again, and why:  airflow recovery plan %s\n"
        "Once the cause is repaired:  airflow recovery plan %s --apply, or clear this task\n"
        "Or look, and press a button:  %s",
        run,
        run,
        tab_url(dag_id, run_id),
    )
