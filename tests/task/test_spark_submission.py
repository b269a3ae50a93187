"""A drop-in's driver on a standalone cluster outlives its task: asked about over the master's REST API, and adopted."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from tries import execute, journal_in, run_try, state_in, task_context

from airflow_recovery.attempt.application import ApplicationStatus
from airflow_recovery.errors import DriverLeft
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import Claim, FenceCause, Released
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.task import drop_in, outliving_job
from airflow_recovery.task.spark_submission import SparkSubmission

DRIVER = "driver-20240102000000-0000"
CLAIM = Claim("t", 1, "w", "h", (), "r", 1, "i", "tag", "now")


class StateStore:
    """A task's state store that two processes share."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.write_text("{}")

    def get(self, key: str) -> Any:
        return self.all().get(key)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self._path.write_text(json.dumps({**self.all(), key: value}))

    def all(self) -> dict[str, Any]:
        return dict(json.loads(self._path.read_text()))


class Master:
    """The REST API of a standalone master. ``states``: what it answers, one after the other, the last one for ever."""

    def __init__(self) -> None:
        self.states = ["RUNNING"]
        self.asked: list[str] = []
        self.when_finished: Callable[[], object] = lambda: None
        me = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                me.asked.append(self.path.rpartition("/")[2])
                state = me.states.pop(0) if len(me.states) > 1 else me.states[0]
                if state == "FINISHED":
                    me.when_finished()
                body = json.dumps({"success": state != "GONE", "driverState": state}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


class KilledDropIn:
    """One drop-in, whose first try is killed after it submitted."""

    def __init__(self, folder: Path, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.master = folder, master
        self.store = StateStore(folder / "state.json")
        self.submitted = folder / "submissions"
        self.killed = folder / "killed"
        self.application = folder / "app.jar"
        self.application.write_text("code 1")
        me = self

        def submit(hook: SparkSubmitHook, application: str = "", **_: Any) -> str:
            with me.submitted.open("a") as log:
                log.write(f"{hook._application_args[-1]}\n")
            hook._driver_id = DRIVER
            return DRIVER

        def track(hook: SparkSubmitHook) -> None:
            me.write(len(me.locations()))
            hook._driver_status = "FINISHED"

        monkeypatch.setattr(SparkSubmitHook, "submit", submit)
        monkeypatch.setattr(SparkSubmitHook, "_start_driver_status_tracking", track)
        monkeypatch.setattr(SparkSubmitHook, "on_kill", lambda hook: self.killed.write_text(str(hook._driver_id)))

    def locations(self) -> list[Path]:
        """Where each submitted application was told to write."""
        lines = self.submitted.read_text().splitlines() if self.submitted.exists() else []
        return [Path(line.removeprefix("file://")) for line in lines]

    def write(self, attempt: int) -> None:
        folder = self.locations()[attempt - 1]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "part-0").write_text(f"rows of {attempt}")

    def operator(self) -> RecoverableSparkSubmitOperator:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            return RecoverableSparkSubmitOperator(
                task_id="t",
                application=str(self.application),
                outputs=["out"],
                conn_id="cluster",
                application_args=["--out", "{output:out}"],
            )

    def submission(self) -> SparkSubmission:
        context: Any = self.context(1)
        unused: Any = None
        return SparkSubmission(self.operator(), context, unused, unused)

    def context(self, try_number: int) -> dict[str, Any]:
        return {**task_context("t", try_number=try_number), "task_state_store": self.store}

    def killed_try(self, monkeypatch: pytest.MonkeyPatch, at: str = "_start_driver_status_tracking") -> None:
        """A try in a process of its own, which is gone at once where the provider's hook comes to ``at``."""
        pid = os.fork()
        if pid == 0:
            try:
                monkeypatch.setattr(SparkSubmitHook, at, lambda *_, **__: os._exit(9))
                run_try(self.operator(), self.context(1))
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9

    def next_try(self) -> dict[str, Any]:
        return run_try(self.operator(), self.context(2))


@pytest.fixture
def master() -> Iterator[Master]:
    found = Master()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def killed_drop_in(recovery: Path, master: Master, monkeypatch: pytest.MonkeyPatch) -> KilledDropIn:
    port = str(master.server.server_address[1])
    connection = {
        "conn_type": "spark",
        "host": "spark://127.0.0.1",
        "port": 7077,
        "extra": {"deploy-mode": "cluster", "rest-port": port},
    }
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT", "1s")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(outliving_job, "ASK_EVERY_S", 0.0)
    return KilledDropIn(recovery, master, monkeypatch)


def attempts(folder: Path) -> dict[int, bool]:
    return {n: each.is_finished for n, each in state_in(folder, OPERATORS_GROUP, "t").of("t").attempts.items()}


@pytest.mark.slow
def test_fault_3_a_job_that_runs_is_followed_and_what_it_wrote_is_registered(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_drop_in.killed_try(monkeypatch)
    killed_drop_in.master.states = ["SUBMITTED", "RUNNING", "RUNNING", "FINISHED"]
    killed_drop_in.master.when_finished = lambda: killed_drop_in.write(1)
    answer = killed_drop_in.next_try()
    assert (answer["decision"], answer["attempt"], answer["results"]["t.out"]["files"]) == ("kept", 1, 1)
    assert len(killed_drop_in.locations()) == 1
    assert set(killed_drop_in.master.asked) == {DRIVER}
    assert not killed_drop_in.killed.exists()
    assert attempts(killed_drop_in.folder) == {1: True}


def test_fault_19_a_failed_job_never_counts_and_a_new_attempt_has_a_key_of_its_own(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_drop_in.killed_try(monkeypatch)
    killed_drop_in.master.states = ["FAILED"]
    answer = killed_drop_in.next_try()
    assert (answer["decision"], answer["attempt"]) == ("ran", 2)
    assert len(set(killed_drop_in.locations())) == 2
    assert len([key for key in killed_drop_in.store.all() if key.startswith("spark_job_id.")]) == 2


@pytest.mark.slow
def test_fault_76_an_unknown_status_is_no_answer(killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_drop_in.killed_try(monkeypatch)
    killed_drop_in.master.states = ["UNKNOWN"]
    assert killed_drop_in.next_try()["attempt"] == 2
    assert killed_drop_in.killed.read_text() == DRIVER  # as far as it can be
    assert attempts(killed_drop_in.folder) == {1: False, 2: True}


@pytest.mark.slow
def test_fault_18_a_job_that_is_kept_under_another_tag_is_never_asked_about(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_drop_in.killed_try(monkeypatch, "submit")  # no job was submitted, or its id was never kept
    killed_drop_in.store.set("spark_job_id", DRIVER)
    killed_drop_in.store.set("spark_job_id.1", DRIVER)
    assert killed_drop_in.next_try()["attempt"] == 2
    assert killed_drop_in.master.asked == []


@pytest.mark.slow
def test_a_job_that_runs_other_code_is_killed_and_not_adopted(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_drop_in.killed_try(monkeypatch)
    killed_drop_in.application.write_text("code 2")
    assert killed_drop_in.next_try()["attempt"] == 2
    assert killed_drop_in.killed.read_text() == DRIVER
    assert killed_drop_in.master.asked == []


def test_fault_235_a_job_on_a_cluster_is_left_to_the_next_try_by_a_process_that_ends(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = killed_drop_in.operator().prepare_for_execution()
    monkeypatch.setattr(SparkSubmitHook, "_start_driver_status_tracking", lambda hook: operator.on_kill())
    with pytest.raises(DriverLeft):
        execute(operator, killed_drop_in.context(1))
    assert not killed_drop_in.killed.exists()
    killed_drop_in.master.states = ["RUNNING", "FINISHED"]
    killed_drop_in.master.when_finished = lambda: killed_drop_in.write(1)
    assert killed_drop_in.next_try()["attempt"] == 1


def test_fault_235_a_job_that_has_no_id_yet_is_ended_with_its_process(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = killed_drop_in.operator().prepare_for_execution()
    submit = SparkSubmitHook.submit

    def killed_meanwhile(hook: SparkSubmitHook, application: str = "", **given: Any) -> str | None:
        driver = submit(hook, application, **given)
        operator.on_kill()
        return driver

    monkeypatch.setattr(SparkSubmitHook, "submit", killed_meanwhile)
    execute(operator, killed_drop_in.context(1))
    assert killed_drop_in.killed.read_text() == DRIVER


def test_control_without_what_it_rests_on_the_old_code_is_waited_for(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch
) -> None:

    killed_drop_in.killed_try(monkeypatch)
    killed_drop_in.application.write_text("code 2")
    monkeypatch.setattr(drop_in.DropInSubmission, "_is_as_today", lambda self, claim: True)
    killed_drop_in.master.states = ["RUNNING", "FINISHED"]
    killed_drop_in.master.when_finished = lambda: killed_drop_in.write(1)
    assert killed_drop_in.next_try()["attempt"] == 1  # what code 1 has made, for code 2's


# --- what the cluster managers say ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("SUBMITTED", ApplicationStatus.ACTIVE),
        ("RELAUNCHING", ApplicationStatus.ACTIVE),
        ("FINISHED", ApplicationStatus.SUCCEEDED),
        ("KILLED", ApplicationStatus.OVER),
        ("ERROR", ApplicationStatus.OVER),
        ("UNKNOWN", ApplicationStatus.UNKNOWN),
        ("NotFound", ApplicationStatus.UNKNOWN),
        (RuntimeError("no master answers"), ApplicationStatus.UNKNOWN),
    ],
)
def test_every_answer_has_one_meaning(
    killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch, said: Any, means: Any
) -> None:
    def answer(self: SparkSubmitOperator, external_id: str, context: Any) -> str:
        assert external_id == DRIVER
        if isinstance(said, Exception):
            raise said
        return str(said)

    monkeypatch.setattr(SparkSubmitOperator, "get_job_status", answer)
    submission = killed_drop_in.submission()
    assert submission.status(CLAIM) is ApplicationStatus.UNKNOWN  # none was kept
    killed_drop_in.store.set("spark_job_id.tag", DRIVER)
    assert submission.status(CLAIM) is means


def test_a_task_that_is_killed_while_it_follows_kills_the_driver(killed_drop_in: KilledDropIn) -> None:
    submission = killed_drop_in.submission()
    submission.stop()
    assert not killed_drop_in.killed.exists()  # nothing of it runs
    killed_drop_in.store.set("spark_job_id.tag", DRIVER)
    submission.status(CLAIM)
    submission.stop()
    assert killed_drop_in.killed.read_text() == DRIVER


# --- an input that is released while the job runs ---------------------------------------------------------------------


class KilledReader(KilledDropIn):
    """The drop-in reads what another one has made, which is released when its first try has been killed."""

    def operator(self) -> RecoverableSparkSubmitOperator:
        return self.operators()["t"]

    def operators(self) -> dict[str, RecoverableSparkSubmitOperator]:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            given: dict[str, Any] = {"application": str(self.application), "outputs": ["out"], "conn_id": "cluster"}
            p = RecoverableSparkSubmitOperator(task_id="p", application_args=["--out", "{output:out}"], **given)
            arguments = ["--in", "{input:in}", "--out", "{output:out}"]
            t = RecoverableSparkSubmitOperator(
                task_id="t", inputs={"in": p.result("out")}, application_args=arguments, **given
            )
        return {"p": p, "t": t}

    def release_after_the_kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run_try(self.operators()["p"])
        self.killed_try(monkeypatch)
        journal_in(self.folder, OPERATORS_GROUP).release(Released("p", 1, "gc"))
        self.master.states = ["RUNNING", "FINISHED"]
        self.master.when_finished = lambda: self.write(2)


@pytest.fixture
def reader(recovery: Path, killed_drop_in: KilledDropIn, monkeypatch: pytest.MonkeyPatch) -> KilledReader:
    return KilledReader(recovery, killed_drop_in.master, monkeypatch)


@pytest.mark.slow
def test_fault_121_what_a_followed_job_has_read_is_looked_at_before_its_finish(
    reader: KilledReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.release_after_the_kill(monkeypatch)
    with pytest.raises(AirflowFailException, match="p: result was released"):
        reader.next_try()
    outcome = state_in(reader.folder, OPERATORS_GROUP, "t").of("t").attempts[1].outcome
    assert outcome is not None
    assert (outcome.cause, outcome.detail) == (FenceCause.LOST_INPUT, "p@1 was released")


@pytest.mark.slow
def test_fault_121_control_a_followed_job_is_finished_on_what_was_released(
    reader: KilledReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "ensure_inputs_kept", lambda run, attempt: None)
    reader.release_after_the_kill(monkeypatch)
    assert reader.next_try()["attempt"] == 1
