"""Which schedulers a new one waits for, over Airflow's own tables and with its own look for orphans.

In real Airflow: `tests/testing_airflow/test_killed_scheduler.py`.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest
from airflow.utils.state import DagRunState
from sqlalchemy import Engine, delete, insert, update
from sqlalchemy.orm import Session

from airflow_recovery import scheduler_start
from airflow_recovery.scheduler_start import forks_tasks, on_starting, wait_for_killed_schedulers
from airflow_recovery.task import preloading
from airflow_recovery.testing.patience import NEVER_S

THRESHOLD_S = 3
"""A whole number, as Airflow wants it."""


@pytest.fixture(autouse=True)
def database(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr("airflow.utils.session.create_session", lambda: Session(engine))
    monkeypatch.setattr(scheduler_start, "POLL_INTERVAL_S", 0.05)
    monkeypatch.setenv("AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", str(THRESHOLD_S))
    yield engine
    from airflow.jobs.job import Job
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

    with Session(engine) as session:
        for table in (TaskInstance, DagRun, Job):
            session.execute(delete(table))
        session.commit()


def add_scheduler(engine: Engine, *tasks: str, state: str = "running", silent_s: float = 0.0) -> None:
    """A scheduler that has task instances in the states ``tasks``, and whose last heartbeat was ``silent_s`` ago."""
    from airflow.jobs.job import Job
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance

    with Session(engine) as session:
        beat = datetime.now(timezone.utc) - timedelta(seconds=silent_s)
        job_id = session.scalar(
            insert(Job).values(job_type="SchedulerJob", state=state, latest_heartbeat=beat).returning(Job.id)
        )
        session.add(DagRun(dag_id="d", run_id=f"r{job_id}", run_type="manual", state=DagRunState.RUNNING))
        session.flush()
        for number, task_state in enumerate(tasks):
            named = {"dag_id": "d", "run_id": f"r{job_id}", "task_id": f"t{number}", "map_index": -1}
            facts = {"max_tries": 0, "pool": "p", "pool_slots": 1, "span_status": "not_started"}
            task = {**named, **facts, "state": task_state, "queued_by_job_id": job_id}
            session.execute(insert(TaskInstance).values(id=uuid.uuid4(), **task))
        session.commit()


@pytest.fixture
def orphans(database: Engine) -> Callable[[], int]:
    """How many task instances the first look of Airflow's own scheduler would find now; nothing is changed."""
    from airflow.executors.base_executor import BaseExecutor
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

    scheduler = SchedulerJobRunner(Job(), executors=[BaseExecutor()])

    def look() -> int:
        with Session(database) as session:
            found = scheduler.adopt_or_reset_orphaned_tasks(session=session)
            session.rollback()
        return found

    return look


@pytest.mark.slow
def test_the_tasks_of_one_that_was_killed_are_found_afterwards(
    database: Engine, orphans: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_scheduler(database, "queued", "running", "restarting", "success")
    # The control: while the last heartbeat is not too old, a look finds nothing.
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", str(NEVER_S))
        assert orphans() == 0
    wait_for_killed_schedulers()
    assert orphans() == 3


def test_one_that_lives_is_waited_for_until_its_next_heartbeat(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.jobs.job import Job

    monkeypatch.setenv("AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", str(NEVER_S))
    monkeypatch.setenv("AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL", str(2 * NEVER_S))
    add_scheduler(database, "running")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            with Session(database) as session:
                session.execute(update(Job).values(latest_heartbeat=datetime.now(timezone.utc)))
                session.commit()

    monkeypatch.setattr(time, "sleep", sleep)
    wait_for_killed_schedulers()
    assert len(slept) == 3


@pytest.mark.parametrize(
    ("tasks", "state", "silent_s"),
    [
        ((), "running", 0.0),
        (("success", "scheduled", "deferred"), "running", 0.0),
        (("running",), "success", 0.0),
        (("running",), "failed", 0.0),
        (("running",), "running", THRESHOLD_S + 1.0),
    ],
    ids=["without tasks", "with no task to lose", "stopped", "already failed", "already dead"],
)
def test_one_that_nobody_has_to_wait_for(
    database: Engine, tasks: tuple[str, ...], state: str, silent_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_scheduler(database, *tasks, state=state, silent_s=silent_s)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    wait_for_killed_schedulers()


def test_nobody_waits_where_the_second_look_comes_as_soon(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    add_scheduler(database, "running")
    monkeypatch.setenv("AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL", str(THRESHOLD_S))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    wait_for_killed_schedulers()


@pytest.mark.slow
def test_a_clock_that_is_ahead_keeps_nobody_waiting_for_ever(database: Engine, orphans: Callable[[], int]) -> None:
    add_scheduler(database, "running", silent_s=-3600.0)
    wait_for_killed_schedulers()
    assert orphans() == 0


def test_only_the_scheduler_itself_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.jobs.job import Job

    waits: list[None] = []
    monkeypatch.setattr(scheduler_start, "wait_for_killed_schedulers", lambda: waits.append(None))
    monkeypatch.setattr(preloading, "preload", lambda: waits.append(None))
    job = Job.__new__(Job)
    for command, component in (("triggerer", job), ("dag-processor", job), ("scheduler", object())):
        monkeypatch.setattr(sys, "argv", ["airflow", command])
        on_starting(component)
    assert waits == []
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler", "--skip-serve-logs"])
    on_starting(job)
    assert waits == [None, None]


@pytest.mark.parametrize(
    ("executor", "method", "forks"),
    [
        ("LocalExecutor", "fork", True),
        ("CeleryExecutor,LocalExecutor", "fork", True),
        ("CeleryExecutor", "fork", False),
        ("LocalExecutor", "spawn", False),
    ],
)
def test_tasks_of_a_local_executor_are_forks(
    executor: str, method: str, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setattr("multiprocessing.get_start_method", lambda: method)
    assert forks_tasks() is forks


def test_airflow_is_given_it_by_the_plugin() -> None:
    from airflow._shared.listeners.spec import lifecycle
    from airflow.listeners.listener import ListenerManager

    from airflow_recovery.api_server.plugin import RecoveryPlugin

    manager = ListenerManager()
    manager.add_hookspecs(lifecycle)
    for listener in RecoveryPlugin.listeners:
        manager.add_listener(listener)
    assert [hook.function for hook in manager.hook.on_starting.get_hookimpls()] == [on_starting]
