"""Which of our errors Airflow retries."""

from __future__ import annotations

import inspect

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_recovery import errors
from airflow_recovery.task.failures import airflow_errors

OURS = [error for _, error in inspect.getmembers(errors, inspect.isclass) if issubclass(error, errors.RecoveryError)]
FINAL = [error for error in OURS if error.kind.is_final]
"""Which these are: `test_error_answers.py`."""
RETRIED = [error for error in OURS if error not in FINAL and error is not errors.InputSkipped]


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


def test_a_skipped_input_skips() -> None:
    with pytest.raises(AirflowSkipException, match="P was skipped"), airflow_errors():
        raise errors.InputSkipped("P was skipped")


def test_fault_27_denied_is_not_retried_and_control_a_timeout_is() -> None:
    assert errors.StoreAccessDenied.kind.is_final
    assert not errors.StoreTimeout.kind.is_final
