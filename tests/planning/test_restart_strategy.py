"""Flink's restart strategies: one truth table each, literal and with bursts merged."""

from __future__ import annotations

import random

import pytest
from expected_errors import fails_with
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.planning.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    counter_of,
    parse_restart_strategy,
)


def middle(low: float, high: float) -> float:
    """No jitter."""
    return (low + high) / 2


def replay(strategy: RestartStrategy, *times: float, literal: bool = False) -> list[tuple[bool, bool, float]]:
    """After each failure: is it a new attempt, is a restart allowed, and after how long."""
    counter = counter_of(strategy, middle, merges_bursts=not literal)
    return [(counter.notify_failure(at), counter.can_restart(at), counter.backoff_s()) for at in times]


# defaults and names


def test_the_defaults_are_flinks():
    assert FixedDelay() == FixedDelay(attempts=1, delay_s=1.0)
    assert FailureRate() == FailureRate(max_failures_per_interval=1, failure_rate_interval_s=60.0, delay_s=1.0)
    assert ExponentialDelay() == ExponentialDelay(
        initial_backoff_s=1.0,
        max_backoff_s=60.0,
        backoff_multiplier=1.5,
        reset_backoff_threshold_s=3600.0,
        jitter_factor=0.1,
        attempts_before_reset_backoff=None,
    )
    assert [each.name for each in (NoRestart(), FixedDelay(), FailureRate(), ExponentialDelay())] == [
        "none", "fixed-delay", "failure-rate", "exponential-delay",
    ]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "restart-strategy."])
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"type": "none"}, NoRestart()),
        ({"type": "disable"}, NoRestart()),
        ({"type": "fixed-delay"}, FixedDelay()),
        ({"type": "fixeddelay", "fixed-delay.attempts": "3", "fixed-delay.delay": "10 s"}, FixedDelay(3, 10.0)),
        ({"type": "failure-rate"}, FailureRate()),
        (
            {
                "type": "failure-rate",
                "failure-rate.max-failures-per-interval": 3,
                "failure-rate.failure-rate-interval": "5 min",
                "failure-rate.delay": "500 ms",
            },
            FailureRate(3, 300.0, 0.5),
        ),
        ({"type": "exponential-delay"}, ExponentialDelay()),
        (
            {
                "type": "exponential-delay",
                "exponential-delay.initial-backoff": "2s",
                "exponential-delay.max-backoff": "2 min",
                "exponential-delay.backoff-multiplier": "2.0",
                "exponential-delay.reset-backoff-threshold": "1 h",
                "exponential-delay.jitter-factor": 0,
                "exponential-delay.attempts-before-reset-backoff": 4,
            },
            ExponentialDelay(2.0, 120.0, 2.0, 3600.0, 0.0, 4),
        ),
        ({"type": "exponential-delay", "exponential-delay.attempts-before-reset-backoff": "infinite"},
         ExponentialDelay()),
        ({"type": "exponential-delay", "exponential-delay.attempts-before-reset-backoff": 2147483647},
         ExponentialDelay()),
        ({"type": "fixed-delay", "failure-rate.delay": "9 s"}, FixedDelay()),
    ],
)  # fmt: skip
def test_flinks_keys(keys: dict[str, object], expected: RestartStrategy, prefix: str):
    assert parse_restart_strategy({prefix + key: value for key, value in keys.items()}) == expected


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({}, "restart-strategy-unknown"),
        ({"type": "sometimes"}, "restart-strategy-unknown"),
        ({"type": "fixed-delay", "fixed-delay.attempt": 3}, "restart-options-unknown"),
        ({"type": "none", "delay": 3}, "restart-options-unknown"),
        ({"type": "fixed-delay", "fixed-delay.attempts": "three"}, "restart-option-not-whole"),
        ({"type": "fixed-delay", "fixed-delay.attempts": -1}, "restart-option-unfit"),
        ({"type": "fixed-delay", "fixed-delay.delay": "soon"}, "duration-unfit"),
        ({"type": "failure-rate", "failure-rate.max-failures-per-interval": 0}, "restart-option-unfit"),
        ({"type": "exponential-delay", "exponential-delay.backoff-multiplier": 1}, "restart-option-unfit"),
        ({"type": "exponential-delay", "exponential-delay.backoff-multiplier": "x"}, "restart-option-not-a-number"),
        ({"type": "exponential-delay", "exponential-delay.jitter-factor": 2}, "restart-option-unfit"),
        ({"type": "exponential-delay", "exponential-delay.max-backoff": "500 ms"}, "restart-option-unfit"),
    ],
)
def test_what_is_no_strategy_is_refused_by_its_key(keys: dict[str, object], code: str):
    with fails_with(code):
        parse_restart_strategy(keys)


# none


def test_none_never_restarts():
    assert replay(NoRestart(), 0, 100) == [(True, False, 0.0), (True, False, 0.0)]


# fixed-delay: allowed while failures <= attempts


def test_fixed_delay():
    assert replay(FixedDelay(attempts=2, delay_s=5), 0, 10, 20) == [
        (True, True, 5), (True, True, 5), (True, False, 5),
    ]  # fmt: skip


def test_fixed_delay_without_attempts_never_restarts():
    assert replay(FixedDelay(attempts=0), 0)[0][1] is False


#   0    1    2    3    4    5 ... 10      a restart is pending from 0 to 5
#   f    f         f                f


def test_a_burst_counts_once_under_fixed_delay_and_literally_each_counts():
    strategy = FixedDelay(attempts=2, delay_s=5)
    assert [each[:2] for each in replay(strategy, 0, 1, 3, 10)] == [
        (True, True), (False, True), (False, True), (True, True),
    ]  # fmt: skip
    assert [each[:2] for each in replay(strategy, 0, 1, 3, 10, literal=True)] == [
        (True, True), (True, True), (True, False), (True, False),
    ]  # fmt: skip


def test_a_failure_at_the_very_moment_of_the_restart_is_still_one_with_it():
    assert [each[0] for each in replay(FixedDelay(9, 5), 0, 5, 5.1)] == [True, False, True]


# failure-rate: the last max + 1 times, refused when these lie within the interval


def test_failure_rate():
    strategy = FailureRate(max_failures_per_interval=2, failure_rate_interval_s=60, delay_s=1)
    assert [each[1] for each in replay(strategy, 0, 30, 61, 89)] == [True, True, True, False]
    #                          0, 30, 61: 61 s apart  ^     ^ 30, 61, 89 lie within 59 s


def test_failure_rate_at_the_edge_of_the_interval():
    strategy = FailureRate(1, 60, 1)
    assert [each[1] for each in replay(strategy, 0, 60)] == [True, False]
    assert [each[1] for each in replay(strategy, 0, 60.001)] == [True, True]


def test_failure_rate_looks_at_the_time_of_asking():
    counter = counter_of(FailureRate(1, 60, 1), middle)
    counter.notify_failure(0)
    counter.notify_failure(30)
    assert (counter.can_restart(30), counter.can_restart(60), counter.can_restart(61)) == (False, False, True)


def test_a_burst_counts_once_under_failure_rate_and_literally_each_counts():
    strategy = FailureRate(2, 60, 10)
    assert [each[1] for each in replay(strategy, 0, 1, 2, 3)] == [True] * 4
    assert [each[1] for each in replay(strategy, 0, 1, 2, 3, literal=True)] == [True, True, False, False]


# exponential-delay


def test_the_backoff_grows_up_to_its_maximum():
    times = [0, 100, 200, 300, 400]
    strategy = ExponentialDelay(initial_backoff_s=1, max_backoff_s=5, backoff_multiplier=2, jitter_factor=0)
    assert [each[2] for each in replay(strategy, *times)] == [1, 2, 4, 5, 5]


def test_a_failure_before_the_next_restart_is_merged_in_flink_itself():
    strategy = ExponentialDelay(initial_backoff_s=10, backoff_multiplier=2)
    for literal in (False, True):
        assert [each[0] for each in replay(strategy, 0, 5, 10, 10.1, literal=literal)] == [True, False, False, True]


def test_the_backoff_starts_over_after_the_reset_threshold():
    strategy = ExponentialDelay(1, 60, 2, reset_backoff_threshold_s=100, jitter_factor=0)
    # The threshold runs from the next restart time: 2 + 2 + 100.
    assert [each[2] for each in replay(strategy, 0, 2, 103.9)] == [1, 2, 4]
    assert [each[2] for each in replay(strategy, 0, 2, 104)] == [1, 2, 1]


def test_attempts_before_reset_backoff():
    strategy = ExponentialDelay(attempts_before_reset_backoff=2, reset_backoff_threshold_s=1000)
    assert [each[1] for each in replay(strategy, 0, 100, 200, 300)] == [True, True, False, False]
    assert [each[1] for each in replay(strategy, 0, 100, 200, 3000)] == [True, True, False, True]
    assert all(each[1] for each in replay(ExponentialDelay(), *range(0, 100_000, 100)))


@given(seed=st.integers(0, 2**32), gaps=st.lists(st.floats(0, 10_000), max_size=30))
def test_every_backoff_lies_within_its_jitter_and_its_bounds(seed: int, gaps: list[float]):
    strategy = ExponentialDelay(2, 50, 1.7, 500, 0.25)
    counter = counter_of(strategy, random.Random(seed).uniform)
    at = 0.0
    for gap in gaps:
        at += gap
        count = counter.attempts
        previous = counter.backoff_s() if counter.attempts else 0.0
        if counter.notify_failure(at):
            assert counter.attempts in (count + 1, 1)
            plain = 2 * 1.7 ** (counter.attempts - 1)
            drawn = counter.backoff_s()
            assert 2 <= drawn <= 50
            assert max(2, min(plain * 0.75, 50)) - 1e-9 <= drawn <= max(2, min(plain * 1.25, 50)) + 1e-9
        else:
            assert (counter.attempts, counter.backoff_s()) == (count, previous)


def test_a_backoff_beyond_all_numbers_is_the_maximum():
    strategy = ExponentialDelay(1, 60, 1e300)
    assert [each[2] for each in replay(strategy, 0, 1e3, 2e3, 3e3)] == [1, 60, 60, 60]


STRATEGIES = st.one_of(
    st.just(NoRestart()),
    st.builds(FixedDelay, st.integers(0, 5), st.floats(0, 100)),
    st.builds(FailureRate, st.integers(1, 5), st.floats(1, 1000), st.floats(0, 100)),
    st.builds(ExponentialDelay, jitter_factor=st.floats(0, 1)),
)


@given(strategy=STRATEGIES, times=st.lists(st.floats(0, 1e6), max_size=30).map(sorted))
def test_merging_never_counts_more_and_never_ends_earlier(strategy: RestartStrategy, times: list[float]):
    merged, literal = replay(strategy, *times), replay(strategy, *times, literal=True)
    assert sum(each[0] for each in merged) <= sum(each[0] for each in literal)
    for ours, flinks in zip(merged, literal, strict=True):
        assert ours[1] >= flinks[1]


@given(strategy=STRATEGIES, at=st.floats(0, 1e6), gap=st.floats(101, 1e4))
def test_far_apart_there_is_no_burst(strategy: RestartStrategy, at: float, gap: float):
    times = [at + n * gap for n in range(6)]
    assert replay(strategy, *times) == replay(strategy, *times, literal=True)


def test_exponential_delay_asked_before_any_failure_says_so():
    counter = counter_of(ExponentialDelay(), middle)
    assert counter.can_restart(0.0)
    with pytest.raises(AssertionError, match="exponential-delay: expected a failure before the pause after it"):
        counter.backoff_s()
    assert counter.notify_failure(1.0)
    assert counter.backoff_s() == 1.0
