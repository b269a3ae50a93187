"""`airflow_recovery.notifications`: against journals that real tries of the operators have written."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseNotifier
from job_tasks import Drivers, job_dag
from tries import DATE, journal_in, run_try, task_context

from airflow_recovery.attempt.recovery_report import Recovered
from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.records import Reset
from airflow_recovery.notifications import RecoveredNotifier
from airflow_recovery.operators import RecoverableSparkSubmitOperator, SparkRegionOperator, recoverable


class Mail(BaseNotifier):
    """A notifier with a template, as the providers' are."""

    template_fields = ("subject",)

    def __init__(self, subject: str, sent: list[str]) -> None:
        super().__init__()
        self.subject = subject
        self.sent = sent

    def notify(self, context: Any) -> None:
        self.sent.append(self.subject)


@pytest.fixture
def sent() -> list[str]:
    return []


def told(sent: list[str], dag: Any, *, always: bool = False) -> list[str]:
    """What is sent when the DAG's callback is called."""
    context = {**task_context("publish"), "dag": dag}
    RecoveredNotifier(Mail("[{{ dag.dag_id }}] {{ recovery }}", sent), always=always)(context)
    return sent


def run_all(dag: Any, recovery: Path, *, try_number: int = 1) -> None:
    (recovery / "lake").mkdir(exist_ok=True)
    (recovery / "lake" / "a.csv").write_text("1")
    for each in dag.topological_sort():
        if isinstance(each, SparkRegionOperator):
            run_try(each, params={"lake": str(recovery / "lake")}, try_number=try_number)


def fail() -> None:
    raise RegionFailed("boom")


def test_a_run_that_has_recovered(recovery: Path, drivers: Drivers, sent: list[str]) -> None:
    dag = job_dag("dagjobs.shapes:diamond")
    aside = next(task for task in dag.tasks if getattr(task, "region", None) == "aside")
    drivers.meanwhile = fail
    with pytest.raises(RegionFailed):
        run_try(aside)
    run_all(dag, recovery, try_number=2)
    assert told(sent, dag) == ["[d] recovered by itself: 1 of 5 regions, 8 s saved"]
    # A person's restart is not "by itself".
    journal_in(recovery, "g").reset(Reset("joined", 1, "ann", "because"))
    run_all(dag, recovery, try_number=3)
    assert told(sent, dag)[-1] == "[d] recovered: 2 of 5 regions, 8 s saved"


class FlightsSubmit(RecoverableSparkSubmitOperator):
    """A site's own, in a module of its own."""


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize("kind", ["recoverable", "subclass"])
def test_an_operator_whose_class_is_of_another_module_than_ours(recovery: Path, sent: list[str], kind: str) -> None:
    job = recovery / "job.py"
    job.write_text(
        "import sys, pathlib\n"
        "out, once = pathlib.Path(sys.argv[1].removeprefix('file://')), pathlib.Path(__file__).with_suffix('.once')\n"
        "if not once.exists():\n    once.touch()\n    sys.exit('boom')\n"
        "out.mkdir(parents=True)\n(out / 'rows').write_text('1')\n"
    )
    given: dict[str, Any] = {"task_id": "a", "outputs": ["a"], "retry_delay": 0}
    with DAG("d", schedule=None, start_date=DATE) as dag:
        if kind == "recoverable":
            command = f"{sys.executable} {job} '{{output:a}}'"
            task: Any = recoverable(BashOperator, paths="plain")(bash_command=command, **given)
        else:
            task = FlightsSubmit(application=str(job), application_args=["{output:a}"], **given)
    with pytest.raises(RegionFailed):
        run_try(task)
    run_try(task, try_number=2)
    assert told(sent, dag) == ["[d] recovered by itself: 1 of 1 regions, 0 s saved"]


def test_a_run_in_which_nothing_had_to_recover(recovery: Path, drivers: Drivers, sent: list[str]) -> None:
    dag = job_dag("dagjobs.shapes:diamond")
    assert told(sent, dag, always=True) == []  # there is no journal yet
    run_all(dag, recovery)
    assert told(sent, dag) == []
    assert told(sent, dag, always=True) == ["[d] nothing had to recover: 5 regions ran once"]


def test_a_journal_that_can_not_be_read_fails_no_callback(
    recovery: Path, sent: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", "ftp://nowhere")
    with caplog.at_level(logging.ERROR):
        assert told(sent, job_dag("dagjobs.shapes:diamond")) == []
    assert "could not be read from its journal" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (7800.0, "recovered by itself: 1 of 2 regions, 2 h 10 min saved"),
        (61.0, "recovered by itself: 1 of 2 regions, 1 min 1 s saved"),
        (0.4, "recovered by itself: 1 of 2 regions, 0 s saved"),
    ],
)
def test_times_as_people_say_them(seconds: float, text: str) -> None:
    assert Recovered(2, ("a",), ("b",), False, seconds).text() == text
