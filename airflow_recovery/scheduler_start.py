"""Inside Airflow's scheduler, before it begins: import what its tasks need, and wait for one that was killed.

A task of the LocalExecutor is a fork of the scheduler, so what the scheduler has imported no task imports again.

A scheduler looks for tasks of dead ones when it begins, and then every ``[scheduler] orphaned_tasks_check_interval``,
which is 300 s. One that was killed counts as alive for ``scheduler_health_check_threshold`` after its last heartbeat,
which is 30 s. So one that is started again at once, as service managers do it, comes too early for its first look, and
the tasks wait for the second. Waiting seconds saves minutes. Nothing is written: Airflow's own first look finds them.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_recovery.airflow_compat import hookimpl

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5

_PRELOADING = "airflow_recovery.task.preloading"
"""Found by name, as Airflow finds this plugin: it needs most of the package, and this module is loaded everywhere."""


@hookimpl
def on_starting(component: object) -> None:
    """Airflow's hook: a component is about to begin. It blocks the scheduler, and returns at once in all others."""
    # A task of the LocalExecutor is a fork of the scheduler, and has its arguments too.
    if type(component).__module__ == "airflow.jobs.job" and sys.argv[1:2] == ["scheduler"]:
        wait_for_killed_schedulers()
        if forks_tasks():
            import_module(_PRELOADING).preload()


def forks_tasks() -> bool:
    """Whether tasks are forks of the scheduler."""
    import multiprocessing

    from airflow.sdk import conf

    return "LocalExecutor" in conf.get("core", "executor") and multiprocessing.get_start_method() == "fork"


def wait_for_killed_schedulers() -> None:
    """Wait until each scheduler that has tasks has either given a heartbeat or counts as dead.

    At most ``[scheduler] scheduler_health_check_threshold``; not at all where the second look comes as soon as that.
    """
    from airflow.sdk import conf

    from airflow_recovery.airflow_compat import create_session

    threshold_s = conf.getfloat("scheduler", "scheduler_health_check_threshold")
    if conf.getfloat("scheduler", "orphaned_tasks_check_interval") <= threshold_s:
        return
    first: dict[int, datetime] | None = None
    # A clock of another machine that is ahead of this one must not keep it waiting.
    deadline = time.monotonic() + threshold_s
    while time.monotonic() < deadline:
        with create_session() as session:
            beats = heartbeats(session, threshold_s)
        if first is None:
            first = beats
        silent = [job for job, beat in beats.items() if first.get(job) == beat]
        if not silent:
            break
        if beats is first:
            log.info(
                "Schedulers %s have tasks and no heartbeat yet: waiting until they have one, or %.0f s are over and "
                "their tasks are found",
                silent,
                threshold_s,
            )
        time.sleep(POLL_INTERVAL_S)


def heartbeats(session: Session, threshold_s: float) -> dict[int, datetime]:
    """The last heartbeat of each scheduler that has tasks and counts as alive, by its job's id."""
    from sqlalchemy import select

    from airflow_recovery.airflow_compat import Job, State, TaskInstance

    query = select(Job.id, Job.latest_heartbeat).where(
        Job.job_type == "SchedulerJob",
        Job.state == "running",
        Job.latest_heartbeat >= datetime.now(timezone.utc) - timedelta(seconds=threshold_s),
        Job.id.in_(select(TaskInstance.queued_by_job_id).where(TaskInstance.state.in_(State.adoptable_states))),
    )
    return {job: beat for job, beat in session.execute(query) if beat is not None}
