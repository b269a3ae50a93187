"""Which of our errors Airflow retries."""

from __future__ import annotations

import inspect

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_recovery import errors
from airflow_recovery.model.build_in_progress import SharedMadeElsewhere
from airflow_recovery.task.failures import NOT_CURED_BY_RETRY, airflow_errors

RETRIED = {
    errors.AttemptLost, errors.InputLost, errors.ManifestInvalid, errors.NotMine, errors.ObjectMissing,
    errors.Overtaken, errors.PagesDisagree, errors.RegionFailed, errors.StoreTimeout, errors.StoreUnavailable,
    errors.InputUnreadable, errors.PartitionMissing, errors.InputAltered, errors.InputTimedOut, errors.TransferBroken,
    errors.InfrastructureFailed, errors.DriverLost, errors.OutOfMemory, errors.ExecutorLost, errors.SessionLost,
    errors.RestartPending, errors.StoreFull, SharedMadeElsewhere, errors.SubtasksFailed,
    errors.HistoryIncomplete, errors.CacheUnreachable, errors.StoreCredentialsExpired, errors.SinkUnavailable,
    errors.SinkNotApplied, errors.ChannelInconsistent, errors.InputReleased,
}  # fmt: skip


@pytest.mark.parametrize("kind", NOT_CURED_BY_RETRY)
def test_what_a_retry_cannot_cure_fails_at_once_with_its_reason(kind: type[errors.RecoveryError]) -> None:
    with pytest.raises(AirflowFailException, match="the reason") as caught, airflow_errors():
        raise kind("the reason")
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize("kind", sorted(RETRIED, key=lambda each: each.__name__))
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
    assert issubclass(errors.StoreAccessDenied, NOT_CURED_BY_RETRY)
    assert not issubclass(errors.StoreTimeout, NOT_CURED_BY_RETRY)


def test_no_error_was_forgotten() -> None:
    """Every error that a task may end with is on one of the two sides."""
    never = {
        errors.RecoveryError, errors.StoreError, errors.JournalError, errors.ObjectExists, errors.UnknownRegion,
        errors.UnknownVertex, errors.PartitionUnavailable, errors.InputSkipped, errors.NotPublished,
        errors.NothingRecorded, errors.PlanOutdated, errors.Refused, errors.StreamDamaged,
        # By what they are: records and refusals.
        errors.HoldsOther,
        # No operator takes a side of a channel.
        errors.ChannelError, errors.ChannelEvicted, errors.ChannelAltered,
    }  # fmt: skip
    ours = {each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.RecoveryError)}
    assert ours - never - RETRIED == set(NOT_CURED_BY_RETRY)
