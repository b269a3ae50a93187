"""What Airflow is told after each exception. After a kill it is told nothing: `tests/attempt/test_restarts.py`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.retry_policy import RetryAction, RetryDecision

from airflow_recovery import errors
from airflow_recovery.attempt.restarts import attach
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.planning.restart_budget import Budget, RestartDecision
from airflow_recovery.task.retry_policy import RecoveryRetryPolicy

POLICY = RecoveryRetryPolicy(retries=12)


def asked(error: BaseException, *, try_number: int = 1, max_tries: int = 12, policy: RecoveryRetryPolicy = POLICY):
    return policy.evaluate(error, try_number, max_tries)


def decided(allowed: bool) -> errors.RegionFailed:
    error = errors.RegionFailed("boom")
    ended = None if allowed else Budget.PER_TASK
    attach(error, RestartDecision(allowed, 4.5, "R is restarted after failure 2", 2, ended))
    return error


def test_a_failure_waits_as_the_strategy_says_and_the_reason_is_shown() -> None:
    assert asked(decided(True)) == RetryDecision.retry(timedelta(seconds=4.5), "R is restarted after failure 2")


def test_a_decision_is_found_behind_the_error_that_is_raised() -> None:
    wrapped = RuntimeError("from Airflow")
    wrapped.__cause__ = decided(True)
    assert asked(wrapped).retry_delay == timedelta(seconds=4.5)


def test_an_ended_budget_ends_the_task() -> None:
    assert asked(decided(False)).action is RetryAction.FAIL
    assert asked(errors.RestartsExhausted("maximum-per-task-failures is 3")) == RetryDecision.fail(
        "maximum-per-task-failures is 3"
    )


def test_a_pause_that_is_not_over_is_given_back() -> None:
    assert asked(errors.RestartPending("in 90 s", 90.0)).retry_delay == timedelta(seconds=90)


@pytest.mark.parametrize("kind", [errors.InputLost, errors.Overtaken, errors.AttemptLost, errors.PagesDisagree])
def test_what_only_waits_does_so_without_a_delay(kind: type[errors.RecoveryError]) -> None:
    assert asked(kind("wait for P")) == RetryDecision.retry(timedelta(0), "wait for P")


def several(*found: Exception) -> errors.SubtasksFailed:
    return errors.SubtasksFailed("2 of 9 failed", {str(at): each for at, each in enumerate(found)})


def test_of_several_subtasks_the_longest_pause_counts() -> None:
    """Each of them then starts in one try: none before its own pause is over."""
    told = asked(several(decided(True), errors.RestartPending("in 90 s", 90.0), errors.InputLost("wait for P")))
    assert told == RetryDecision.retry(timedelta(seconds=90), "2 of 9 failed")
    assert asked(several(errors.UserCodeError("wrong"), decided(True))).retry_delay == timedelta(seconds=4.5)


def test_of_several_subtasks_of_which_none_may_go_on_the_task_fails() -> None:
    assert asked(several(decided(False), errors.UserCodeError("wrong"))).action is RetryAction.FAIL


def test_the_users_own_delay_holds_for_several_subtasks_too() -> None:
    own = RecoveryRetryPolicy(retries=12, delay_is_own=True)
    assert asked(several(decided(True), errors.InputLost("wait")), policy=own) == RetryDecision.default()


@pytest.mark.parametrize(
    ("try_number", "max_tries", "delay"),
    [(1, 12, 1.0), (2, 12, 1.5), (3, 12, 2.25), (5, 16, 1.0), (40, 50, 1.5), (90, 12, 60)],
)
def test_what_failed_outside_an_attempt_backs_off_by_tries_since_the_last_clear(
    try_number: int, max_tries: int, delay: float
) -> None:
    decision = asked(errors.StoreUnavailable("503"), try_number=try_number, max_tries=max_tries)
    assert decision.retry_delay == timedelta(seconds=delay)
    assert decision.reason == "StoreUnavailable, outside an attempt: no failure of the region"


def test_a_delay_of_the_users_own_is_kept_for_failures_and_waiting_stays_without() -> None:
    own = RecoveryRetryPolicy(retries=12, delay_is_own=True)
    assert asked(decided(True), policy=own) == RetryDecision.default()
    assert asked(errors.StoreUnavailable("503"), policy=own) == RetryDecision.default()
    assert asked(errors.InputLost("P"), policy=own).retry_delay == timedelta(0)


def rendering(template: str) -> Exception:
    """What Airflow's own rendering of an operator raises."""
    with DAG("d", schedule=None):
        task = RecoverableSparkSubmitOperator(
            task_id="t", application="a.py", outputs=["out"], application_args=["{output:out}", template]
        )
    context: Any = {"conf": {}}
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whichever it is
        task.render_template_fields(context)
    return raised.value


@pytest.mark.parametrize("template", ["{{ conf['day'] }}", "{{ dya }}", "{{ conf.day.year }}", "{% if %}"])
@pytest.mark.parametrize("policy", [POLICY, RecoveryRetryPolicy(retries=12, delay_is_own=True)])
def test_a_template_that_has_no_value_in_this_run_is_not_tried_again(
    template: str, policy: RecoveryRetryPolicy
) -> None:
    decision = asked(rendering(template), policy=policy)
    assert decision.action is RetryAction.FAIL
    assert "A template of this task can't be rendered in this run" in str(decision.reason)


def test_control_what_a_template_calls_may_go_well_the_next_time() -> None:
    assert asked(rendering("{{ 1 / 0 }}")).action is RetryAction.RETRY


def test_serialised_and_read_back() -> None:
    own = RecoveryRetryPolicy(retries=7, delay_is_own=True)
    assert RecoveryRetryPolicy.deserialize(own.serialize()).__dict__ == own.__dict__
