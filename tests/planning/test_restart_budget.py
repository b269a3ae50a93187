"""Which budget ends, when, and what is said."""

from __future__ import annotations

import pytest
from expected_errors import fails_with
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.planning.restart_budget import (
    Budget,
    RestartDecision,
    RestartLimits,
    decide_remake,
    decide_restart,
)
from airflow_recovery.planning.restart_strategy import ExponentialDelay, FailureRate, FixedDelay, NoRestart


def decide(
    limits: RestartLimits, own: list[float], others: list[float] | None = None, now: float | None = None, **more: bool
) -> RestartDecision:
    return decide_restart(
        limits,
        "R",
        own_s=own,
        all_s=own + (others or []),
        now_s=max(own, default=0.0) if now is None else now,
        uniform=lambda low, high: (low + high) / 2,
        **more,
    )


def test_our_default_is_exponential_delay_with_three_failures():
    limits = RestartLimits.of()
    assert (limits.strategy, limits.maximum_per_task_failures) == (ExponentialDelay(), 3)
    assert limits.maximum_total_task_failures is None
    assert [decide(limits, [0.0] * n).allowed for n in range(5)] == [True, True, True, False, False]


def test_flinks_default_for_batch_restarts_nothing():
    decision = decide(RestartLimits.of(NoRestart()), [0])
    assert (decision.allowed, decision.ended) == (False, Budget.STRATEGY)
    assert decision.reason == "R has failed, and restart-strategy is none"


@pytest.mark.parametrize(
    ("strategy", "declared", "expected"),
    [
        (None, None, 3),
        (None, 5, 5),
        (ExponentialDelay(), None, 3),
        (ExponentialDelay(attempts_before_reset_backoff=7), None, None),
        (FixedDelay(attempts=9), None, None),
        (FixedDelay(attempts=9), 2, 2),
        (FailureRate(), None, None),
        (NoRestart(), None, None),
    ],
)
def test_a_strategy_that_ends_by_itself_replaces_the_three(strategy, declared, expected):
    assert RestartLimits.of(strategy, declared).maximum_per_task_failures == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (RestartLimits.of(), 2),
        (RestartLimits.of(maximum_per_task_failures=1), 0),
        (RestartLimits.of(FixedDelay(attempts=4)), 4),
        (RestartLimits.of(FixedDelay(attempts=4), 3), 2),
        (RestartLimits.of(FailureRate()), None),
        (RestartLimits.of(NoRestart()), 0),
    ],
)
def test_how_many_restarts_a_region_can_get(limits: RestartLimits, expected: int | None):
    assert limits.max_restarts == expected


@pytest.mark.parametrize("limit", [0, -1, True, "3", 1.5])
def test_a_limit_is_a_number_from_one_on(limit):
    for name in ("maximum_per_task_failures", "maximum_total_task_failures"):
        with fails_with("limit-unfit"):
            RestartLimits(**{name: limit})


def test_no_failure_of_its_own_is_no_restart_whatever_became_of_the_others():
    assert decide(RestartLimits.of(maximum_total_task_failures=1), [], [1, 2, 3]).allowed


def test_the_reason_names_the_budget_that_ended():
    def ended(limits: RestartLimits, own: list[float], others: list[float]) -> tuple[Budget | None, str]:
        decision = decide(limits, own, others)
        return decision.ended, decision.reason

    assert ended(RestartLimits.of(), [0, 100, 200], []) == (
        Budget.PER_TASK, "R has failed 3 times, and maximum-per-task-failures is 3",
    )  # fmt: skip
    assert ended(RestartLimits.of(maximum_total_task_failures=3), [300], [0, 100]) == (
        Budget.TOTAL,
        "the regions of this run have failed 3 times together, and maximum-total-task-failures is 3 "
        "(R has failed 1 times)",
    )
    assert ended(RestartLimits.of(FixedDelay(attempts=1, delay_s=2)), [0, 10], []) == (
        Budget.STRATEGY, "R has failed 2 times, and restart-strategy is fixed-delay: attempts 1, delay 2 s",
    )  # fmt: skip


#   A  x                    three regions fail in one moment, while the restart of the first is pending
#   B   x
#   C    x              x   then C alone


def test_a_burst_of_many_regions_counts_once_for_the_run():
    limits = RestartLimits.of(FixedDelay(attempts=9, delay_s=10), None, 2)
    assert decide(limits, [2.0], [0.0, 1.0]).allowed
    assert decide(limits, [2.0], [0.0, 1.0], merges_bursts=False).ended is Budget.TOTAL
    assert decide(limits, [2.0, 50.0], [0.0, 1.0]).ended is Budget.TOTAL


def test_attempts_of_one_region_follow_each_other_so_none_is_lost_in_a_burst():
    """A worker whose clock is ten minutes behind must not make failures vanish (fault 33)."""
    assert decide(RestartLimits.of(), [600.0, 0.0, 1.0]).ended is Budget.PER_TASK


def test_the_pause_is_what_is_left_of_it():
    limits = RestartLimits.of(FixedDelay(attempts=3, delay_s=10))
    assert decide(limits, [100.0], now=100.0).delay_s == 10
    assert decide(limits, [100.0], now=104.0).delay_s == 6
    assert decide(limits, [100.0], now=111.0).delay_s == 0
    assert decide(limits, [100.0], now=100.0).reason == "R is restarted after failure 1, fixed-delay: in 10.0 s"


@given(skew=st.floats(-1e6, 1e6))
def test_a_wrong_clock_never_makes_a_pause_longer_than_the_strategys(skew: float):
    limits = RestartLimits.of(FixedDelay(attempts=3, delay_s=10))
    assert 0 <= decide(limits, [100.0], now=100.0 + skew).delay_s <= 10


def test_the_pauses_of_the_default_grow():
    limits = RestartLimits.of(maximum_per_task_failures=9)
    delays = [decide(limits, [n * 100.0 for n in range(count)]).delay_s for count in range(1, 5)]
    assert delays == [1.0, 1.5, 2.25, 3.375]


def test_losses_are_counted_apart_and_end():
    limits = RestartLimits.of()
    assert [decide_remake(limits, "R", n).allowed for n in range(5)] == [True, True, True, False, False]
    decision = decide_remake(limits, "R", 3)
    assert decision.ended is Budget.LOSSES
    assert "made and lost 3 times" in decision.reason


@pytest.mark.parametrize("strategy", [NoRestart(), FixedDelay(attempts=0), FailureRate()])
def test_a_loss_is_no_failure_under_any_strategy_and_ends_all_the_same(strategy):
    limits = RestartLimits.of(strategy)
    assert [decide_remake(limits, "R", n).allowed for n in (1, 3)] == [True, False]


def test_a_result_that_was_lost_once_is_always_made_again():
    assert decide_remake(RestartLimits.of(maximum_per_task_failures=1), "R", 1).allowed


@given(
    per_task=st.none() | st.integers(1, 5),
    total=st.none() | st.integers(1, 8),
    own=st.lists(st.floats(0, 1e5), min_size=1, max_size=10),
    others=st.lists(st.floats(0, 1e5), max_size=10),
)
def test_one_more_failure_never_gives_back_a_budget(per_task, total, own, others):
    limits = RestartLimits(ExponentialDelay(), per_task, total)
    before, after = decide(limits, own, others), decide(limits, [*own, max(own) + 1000], others)
    assert before.allowed or not after.allowed
    if per_task is not None:
        assert before.allowed is False or len(own) < per_task
