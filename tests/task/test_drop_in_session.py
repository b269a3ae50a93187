"""A drop-in's application with ``spark="per-run"``: a Python process with its session, and no server in these tests."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from paths import CODE
from tries import RUN_KEY, run_try, state_in, submissions, task_context

from airflow_recovery.driver import connect_session
from airflow_recovery.driver.connect_session import session_id_of
from airflow_recovery.errors import DriverLost, JobDefinitionError, RegionFailed
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.store import open_store
from airflow_recovery.task import drop_in_session, run_spark
from airflow_recovery.task.attempt_sessions import ServerChoice
from airflow_recovery.testing.patience import wait_until

URL = "sc://127.0.0.1:1/;authorization=Bearer%20t0ken"
SESSION = """
import json, os, runpy, sys
names = ("SPARK_REMOTE", "RATE", "PYTHONPATH", "PYSPARK_SUBMIT_ARGS")
with open(os.environ["TOLD"], "a") as log:
    log.write(json.dumps({name: os.environ.get(name) for name in names}) + "\\n")
"""


class Server(ServerChoice):
    """In place of the run's own. ``lost``: why it is gone."""

    lost: str | None = None

    def __init__(self, own: object, start: run_spark.StartServer) -> None:
        super().__init__(URL)
        assert start.name == f"d.{OPERATORS_GROUP}"

    def why_lost(self) -> str | None:
        return self.lost


@pytest.fixture(autouse=True)
def interrupted(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The sessions that are interrupted, each with its user."""
    sessions: list[tuple[str, str]] = []

    def interrupt(url: str, *, session_id: str, user_id: str) -> tuple[str, ...]:
        assert url == URL
        sessions.append((session_id, user_id))
        return ("operation",)

    monkeypatch.setattr(run_spark, "OwnServer", Server)
    monkeypatch.setattr(connect_session, "interrupt_attempt", interrupt)
    monkeypatch.setenv("TOLD", str(recovery / "told"))
    return sessions


def task_of(folder: Path, code: str = "", **given: Any) -> RecoverableSparkSubmitOperator:
    application = folder / "application.py"
    application.write_text(f"{SESSION}\n{code}\nrunpy.run_path({str(CODE / 'writer.py')!r}, run_name='__main__')\n")
    arguments: dict[str, Any] = {"task_id": "t", "outputs": ["out"], "spark": "per-run"}
    arguments |= {"application": str(application), "application_args": ["--out", "{output:out}"]}
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            **{"task_id": "t", "outputs": ["out"], "spark": "per-run", **arguments, **given}
        )


def on_worker(task: RecoverableSparkSubmitOperator, try_number: int = 1) -> dict[str, Any]:
    context = task_context("t", try_number=try_number)
    context["ti"].hostname = "127.0.0.1"
    return run_try(task, context)


def session_of(recovery: Path, attempt: int) -> str:
    """The session that is meant by the claim of this attempt."""
    identity = RunIdentity("d", RUN_KEY, OPERATORS_GROUP)
    journal = Journal(open_store(f"file://{recovery}/journal"), identity, writer="test")
    return session_id_of(journal.read_claim("t", attempt).tag)


def test_it_finds_the_session_of_its_attempt_and_is_not_submitted(recovery: Path, submitted: Path) -> None:
    task = task_of(recovery, env_vars={"RATE": "2"}, py_files="/code/a.zip,/code/b.py")
    made = on_worker(task)
    assert (made["decision"], made["attempt"]) == ("ran", 1)
    (told,) = submissions(recovery / "told")
    assert told["SPARK_REMOTE"] == f"{URL};session_id={session_of(recovery, 1)};user_id=airflow-recovery"
    assert told["RATE"] == "2"
    assert told["PYTHONPATH"].split(os.pathsep)[:2] == ["/code/a.zip", "/code/b.py"]
    assert not submissions(submitted)
    assert on_worker(task, 2)["decision"] == "kept"


def test_its_failure_is_told_with_the_end_of_its_output(recovery: Path) -> None:
    task = task_of(recovery, "print('no such flight'); sys.exit(3)")
    with pytest.raises(RegionFailed, match=r"t@1: the application failed: .*Error code is: 3\.(.|\n)*no such flight"):
        on_worker(task)


def test_a_module_that_is_missing_is_to_be_installed(recovery: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"could not start: .*no_such_module.*Install it"):
        on_worker(task_of(recovery, "import no_such_module"))


def test_where_its_server_is_gone_that_is_the_failure(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "lost", "it ended by itself. Error code is: -9.")
    with pytest.raises(DriverLost, match=r"127\.0\.0\.1:1 is gone: it ended by itself"):
        on_worker(task_of(recovery, "sys.exit(1)"))


def test_fault_142_an_application_whose_server_is_gone_does_not_wait_for_it(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's client would, for ten minutes."""
    monkeypatch.setattr(drop_in_session, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(Server, "why_lost", lambda self: "it was killed" if (recovery / "told").exists() else None)
    with pytest.raises(DriverLost, match=r"127\.0\.0\.1:1 is gone: it was killed"):
        on_worker(task_of(recovery, "import time; time.sleep(86400)"))


def test_a_server_that_does_not_answer_once_is_not_gone(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drop_in_session, "LOOK_EVERY_S", 0.05)
    answers = iter(["it collects garbage"])
    looked = threading.Event()

    def look(self: Server) -> str | None:
        answer = next(answers, None)
        if answer is None:
            (recovery / "answered").touch()
            looked.set()
        return answer

    monkeypatch.setattr(Server, "why_lost", look)
    wait = f"import time\nwhile not os.path.exists({str(recovery / 'answered')!r}): time.sleep(0.05)"
    assert on_worker(task_of(recovery, wait))["decision"] == "ran"
    assert looked.is_set()


def test_control_a_failure_of_its_own_is_no_lost_server(recovery: Path) -> None:
    with pytest.raises(RegionFailed) as raised:
        on_worker(task_of(recovery, "sys.exit(1)"))
    assert not isinstance(raised.value, DriverLost)


def test_fault_148_a_kill_ends_it_and_what_it_has_begun_on_the_server(
    recovery: Path, interrupted: list[tuple[str, str]]
) -> None:
    task = task_of(recovery, "import time; time.sleep(86400)")
    started: list[RecoverableSparkSubmitOperator] = []
    prepare = task.prepare_for_execution
    task.prepare_for_execution = lambda: started.append(prepare()) or started[-1]

    def kill() -> None:
        wait_until((recovery / "told").exists, "the application to begin")
        started[0].on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RegionFailed, match=rf"Error code is: -{signal.SIGKILL:d}\."):
        on_worker(task)
    killer.join()
    assert (session_of(recovery, 1), "airflow-recovery") in interrupted


@pytest.mark.slow
def test_fault_148_the_session_of_an_attempt_that_was_left_open_is_interrupted_before_the_next_one_begins(
    recovery: Path, interrupted: list[tuple[str, str]]
) -> None:
    pid = os.fork()
    if pid == 0:  # a task that is killed
        try:
            on_worker(task_of(recovery, "os.kill(os.getppid(), 9)"))
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].has_outcome
    assert on_worker(task_of(recovery, "pass"), 2)["attempt"] == 2
    assert interrupted == [(session_of(recovery, 1), "airflow-recovery")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"application": "etl.jar"}, "expected a Python application"),
        ({"job_recovery": {"execution.batch.job-recovery.enabled": False}}, "recovery is off"),
        ({"spark": "per-year"}, "per-run"),
    ],
)
def test_what_can_not_run_so_is_refused_where_it_is_written(recovery: Path, given: dict[str, Any], why: str) -> None:
    with pytest.raises(JobDefinitionError, match=why):
        task_of(recovery, **given)


def test_a_template_that_comes_to_something_else_is_refused_before_the_claim(recovery: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"expected a Python application.*found 'etl-2024-01-02\.jar'"):
        on_worker(task_of(recovery, application="etl-{{ ds }}.{{ 'jar' }}"))
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts


def test_this_python_runs_it(recovery: Path) -> None:
    on_worker(task_of(recovery, f"assert sys.executable == {sys.executable!r}"))
