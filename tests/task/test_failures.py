"""Which of our errors Airflow retries."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from tries import execute, task_context

from airflow_recovery import errors
from airflow_recovery.operators import RecoveryPublishOperator, recoverable
from airflow_recovery.task import notes as task_notes
from airflow_recovery.task.failures import LOOK_AGAIN_S, airflow_errors

OURS = [error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.RecoveryError)]
FINAL = [error for error in OURS if error.kind.is_final]
"""Which these are: `test_error_answers.py`."""
RETRIED = [error for error in OURS if error not in (*FINAL, errors.InputSkipped, errors.InputPending)]


@pytest.mark.parametrize("kind", FINAL)
def test_what_a_retry_cannot_cure_fails_at_once_with_its_reason(kind: type[errors.RecoveryError]) -> None:
    with pytest.raises(AirflowFailException, match="the reason") as caught, airflow_errors():
        raise kind("the reason")
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("kind", RETRIED)
def test_what_a_retry_may_cure_is_left_to_airflow(kind: type[errors.RecoveryError]) -> None:
    with pytest.raises(kind, match="later"), airflow_errors():
        raise kind("later")


@pytest.mark.parametrize("kind", [errors.InputLost, errors.RegionFailed, errors.StoreTimeout])
def test_fault_72_the_last_of_airflows_tries_says_that_it_is_airflows_retries_that_ended(
    kind: type[errors.RecoveryError],
) -> None:
    with (
        pytest.raises(AirflowFailException, match=r"later Airflow's own retries have ended .* has not"),
        airflow_errors(is_last_try=True),
    ):
        raise kind("later")


def test_fault_72_control_an_ended_budget_does_not_blame_airflow() -> None:
    with pytest.raises(AirflowFailException) as caught, airflow_errors(is_last_try=True):
        raise errors.RestartsExhausted("maximum-per-task-failures is 3")
    assert str(caught.value) == "maximum-per-task-failures is 3"


@pytest.mark.parametrize("is_last_try", [False, True])
def test_fault_352_a_task_that_waits_is_rescheduled_also_in_its_last_try(is_last_try: bool) -> None:
    before = datetime.now(timezone.utc)
    with pytest.raises(AirflowRescheduleException) as caught, airflow_errors(is_last_try=is_last_try):
        raise errors.InputPending("a is not over")
    assert caught.value.reschedule_date >= before + timedelta(seconds=LOOK_AGAIN_S)
    assert isinstance(caught.value.__cause__, errors.InputPending)


def publishing(*, first: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Exception, list[str]]:
    """A try of the publish task while a region is at work: its error and its notes.

    ``first``: the publish task stands above the region.
    """
    notes: list[str] = []
    monkeypatch.setattr(task_notes, "leave_note", lambda context, text: notes.append(text))
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        job = recoverable(BashOperator, paths="plain")(task_id="t", bash_command="{output:o}", outputs=["o"])
        publish = RecoveryPublishOperator(task_id="publish")
    if first:
        publish >> job
    context = task_context("publish", states={"t": "running"})
    context["task"] = publish
    with pytest.raises(AirflowException) as caught:
        execute(publish.prepare_for_execution(), context)
    return caught.value, notes


def test_fault_352_the_task_that_publishes_is_rescheduled_and_its_note_says_why(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, (note,) = publishing(first=False, monkeypatch=monkeypatch)
    assert isinstance(error, AirflowRescheduleException)
    assert note.startswith("not yet: The results of t are to be published, and that is not over in this run")


def test_fault_352_one_that_would_wait_without_end_fails(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error, _ = publishing(first=True, monkeypatch=monkeypatch)
    assert isinstance(error, AirflowFailException)
    assert "Airflow starts t only after this task" in str(error)


def test_a_skipped_input_skips() -> None:
    with pytest.raises(AirflowSkipException, match="P was skipped"), airflow_errors():
        raise errors.InputSkipped("P was skipped")


def test_fault_27_denied_is_not_retried_and_control_a_timeout_is() -> None:
    assert errors.StoreAccessDenied.kind.is_final
    assert not errors.StoreTimeout.kind.is_final
