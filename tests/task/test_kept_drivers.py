"""A drop-in in client mode whose task process ends while the driver works: with real processes, and no Spark."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from process_life import is_alive
from tries import execute, journal_in, run_try, state_in, task_context

from airflow_recovery.attempt.run import Run
from airflow_recovery.driver.submit_keeper import end_keeper_of, keeper_of
from airflow_recovery.errors import DriverLeft
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import Claim, FenceCause
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.task import spark_submission
from airflow_recovery.testing.patience import HANG_S, wait_until

SUBMIT = """#!{python}
import os, pathlib, sys, time
folder = pathlib.Path({folder!r})
(folder / f"driver-{{os.getpid()}}").touch()
while not (folder / "end").exists():
    time.sleep(0.02)
code = int((folder / "end").read_text())
if code == 0:
    out = pathlib.Path(sys.argv[-1].removeprefix("file://"))
    out.mkdir(parents=True)
    (out / "part-0").write_text(f"rows of {{os.getpid()}}")
print("the last words", flush=True)
os._exit(code)
"""
LEFT, TOLD = 7, 8
"""Exit codes of a task's process that has left its driver, and of one that has failed by itself."""


class ClientMode:
    """One drop-in, and a program in place of spark-submit. Each try but the last has a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.application = folder / "app.jar"
        self.application.write_text("code 1")
        binary = folder / "bin" / "spark-submit"
        binary.parent.mkdir()
        binary.write_text(SUBMIT.format(python=sys.executable, folder=str(folder)))
        binary.chmod(0o755)
        monkeypatch.setenv("PATH", f"{binary.parent}{os.pathsep}{os.environ['PATH']}")
        self.states: dict[str, str | None] = {}
        self.processes: list[int] = []

    def operator(self, **given: Any) -> RecoverableSparkSubmitOperator:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            return RecoverableSparkSubmitOperator(
                task_id="t",
                application=str(self.application),
                outputs=["out"],
                application_args=["--out", "{output:out}"],
                **given,
            )

    def begin(self, **given: Any) -> int:
        """A try in a process of its own, until its driver works; the process's id."""
        before = len(self.drivers())
        operator = self.operator(**given).prepare_for_execution()
        pid = os.fork()
        if pid == 0:
            code = TOLD
            try:
                signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow's task runner does
                try:
                    execute(operator, self.context(operator))
                except BaseException as error:
                    (self.folder / "error").write_text(f"{type(error).__name__}: {error}")
                    code = LEFT if isinstance(error, DriverLeft) else TOLD
            finally:
                os._exit(code)
        self.processes.append(pid)
        wait_until(lambda: len(self.drivers()) > before, "the driver")
        wait_until(lambda: self.beats(), "a heartbeat")
        return pid

    def end(self, pid: int, how: signal.Signals) -> int:
        """Send a signal to the process of a try; its exit code."""
        os.kill(pid, how)
        self.processes.remove(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def drivers(self) -> list[int]:
        return [int(path.name.partition("-")[2]) for path in self.folder.glob("driver-*")]

    def beats(self) -> list[Path]:
        return list((self.folder / "journal").glob("**/h/t/0*1"))

    def let_drivers_end(self, code: int) -> None:
        (self.folder / "end.new").write_text(str(code))
        (self.folder / "end.new").rename(self.folder / "end")

    def claim(self, attempt: int = 1) -> Claim:
        return journal_in(self.folder, OPERATORS_GROUP).read_claim("t", attempt)

    def attempts(self) -> dict[int, FenceCause | str | None]:
        found = state_in(self.folder, OPERATORS_GROUP, "t").of("t").attempts
        return {n: each.outcome.cause or "finished" if each.outcome else None for n, each in found.items()}

    def context(self, operator: Any, try_number: int = 1) -> Any:
        context = task_context("t", try_number=try_number, states=self.states)
        context["ti"].max_tries, context["task"] = operator.retries, operator
        return context

    def next_try(self) -> dict[str, Any]:
        operator = self.operator()
        return run_try(operator, self.context(operator, 2))


@pytest.fixture
def client_mode(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClientMode]:
    monkeypatch.setattr(spark_submission, "is_supervised", lambda: True)
    monkeypatch.setenv("AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT", f"{HANG_S:.0f}s")
    found = ClientMode(recovery, monkeypatch)
    yield found
    for pid in found.processes:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for attempt in found.attempts():
        end_keeper_of(found.claim(attempt).tag)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, LEFT)])
def test_fault_235_the_next_try_registers_what_the_driver_of_an_ended_task_has_written(
    client_mode: ClientMode, how: signal.Signals, code: int
) -> None:
    pid = client_mode.begin()
    assert client_mode.end(pid, how) == code
    assert client_mode.attempts() == {1: None}
    (driver,) = client_mode.drivers()
    assert is_alive(driver)
    client_mode.let_drivers_end(0)
    answer = client_mode.next_try()
    assert (answer["decision"], answer["attempt"], answer["results"]["t.out"]["files"]) == ("kept", 1, 1)
    assert client_mode.drivers() == [driver]


@pytest.mark.slow
def test_fault_235_control_with_a_timeout_of_0_the_driver_ends_with_its_task(
    client_mode: ClientMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__ORPHANED_DRIVER_TIMEOUT", "0s")
    pid = client_mode.begin()
    (driver,) = client_mode.drivers()
    assert client_mode.end(pid, signal.SIGTERM) == TOLD
    wait_until(lambda: not is_alive(driver), "the end of the driver")
    client_mode.let_drivers_end(0)
    assert client_mode.next_try()["attempt"] == 2


@pytest.mark.slow
def test_fault_235_a_driver_that_fails_after_its_task_has_gone_is_a_failure_of_its_own(client_mode: ClientMode) -> None:
    client_mode.end(client_mode.begin(), signal.SIGTERM)
    (driver,) = client_mode.drivers()
    client_mode.let_drivers_end(3)
    wait_until(lambda: not is_alive(driver) and keeper_of(client_mode.claim().tag) is None, "the end of the driver")
    client_mode.let_drivers_end(0)
    assert client_mode.next_try()["attempt"] == 2
    outcome = journal_in(client_mode.folder, OPERATORS_GROUP).read_outcome("t", 1)
    assert outcome is not None
    assert outcome.failure is not None
    assert "the last words" in outcome.failure.message


def test_fault_236_a_driver_of_other_code_is_ended_before_the_next_attempt_begins(client_mode: ClientMode) -> None:
    client_mode.end(client_mode.begin(), signal.SIGKILL)
    (driver,) = client_mode.drivers()
    client_mode.application.write_text("code 2")
    pid = client_mode.begin()
    assert not is_alive(driver)
    assert client_mode.attempts()[2] is None
    client_mode.end(pid, signal.SIGKILL)


@pytest.mark.parametrize("state", ["failed", "success"])
def test_fault_237_a_task_that_was_set_by_hand_ends_its_driver(client_mode: ClientMode, state: str) -> None:
    client_mode.states["t"] = state
    pid = client_mode.begin()
    (driver,) = client_mode.drivers()
    assert client_mode.end(pid, signal.SIGTERM) == TOLD
    assert not is_alive(driver)
    assert client_mode.attempts() == {1: FenceCause.SUPERSEDED}
    assert "was set to another state" in (client_mode.folder / "error").read_text()


def test_fault_237_control_without_the_question_the_driver_works_on_for_nobody(
    client_mode: ClientMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "was_set_by_hand", lambda *_: False)
    client_mode.states["t"] = "failed"
    pid = client_mode.begin()
    (driver,) = client_mode.drivers()
    assert client_mode.end(pid, signal.SIGTERM) == LEFT
    assert is_alive(driver)
    assert client_mode.attempts() == {1: None}


def test_a_driver_ends_with_the_time_of_its_task(client_mode: ClientMode) -> None:
    """As Airflow's ``execution_timeout`` does: an error out of `execute`, and then `on_kill`."""

    class TaskTimeout(BaseException):
        pass

    operator = client_mode.operator(execution_timeout=timedelta(seconds=1)).prepare_for_execution()

    def too_late(*_: Any) -> None:
        raise TaskTimeout

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 3)
        with pytest.raises(TaskTimeout):
            execute(operator, client_mode.context(operator))
        operator.on_kill()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    (driver,) = client_mode.drivers()
    wait_until(lambda: not is_alive(driver), "the end of the driver")
    assert client_mode.attempts() == {1: FenceCause.OWN_FAILURE}


def test_the_error_of_a_driver_that_failed_shows_the_command_of_spark_submit_alone(client_mode: ClientMode) -> None:
    client_mode.let_drivers_end(5)
    with pytest.raises(
        Exception, match=r"Error code is: 5\.\nthe last words\nCannot execute: \S*spark-submit --master "
    ):
        run_try(client_mode.operator(), task_context("t"))


def test_fault_235_the_keeper_is_told_where_the_journal_is(client_mode: ClientMode) -> None:
    pid = client_mode.begin()
    keeper = keeper_of(client_mode.claim().tag)
    assert keeper is not None
    order_file = Path(f"/proc/{keeper}/cmdline").read_bytes().split(b"\0")[2].decode()
    order = json.loads(Path(order_file).read_text())
    assert (order["task_pid"], order["region"], order["attempt"]) == (pid, "t", 1)
    assert order["journal"]["uri"] == f"file://{client_mode.folder}/journal"
    assert str(Path(order_file).parent) in order["holds"]
