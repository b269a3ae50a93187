"""Which restart budget a failure counts against, and whether it has ended. Pure: a fold over failures that happened.

Three budgets end a region, and a message always names the one that did:

- per region, ``maximum-per-task-failures``: at most so many failures of one region; and as many *losses* of its
  results, counted apart, so that recovery from a loss never uses up what the region may fail by itself;
- per run, ``maximum-total-task-failures``: at most so many failures of all regions of a run;
- ``restart-strategy``: what the strategy itself allows for one region.

The n-th failure ends a budget of n. A budget is asked before a *restart* only: a region that has not failed yet runs,
whatever became of the others.

What counts, and since when, is decided where the journal is read (`airflow_recovery.attempt.restarts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from airflow_recovery.errors import ConfigurationError
from airflow_recovery.planning.restart_strategy import (
    ExponentialDelay,
    NoRestart,
    RestartCounter,
    RestartStrategy,
    Uniform,
    counter_of,
)

DEFAULT_FAILURES_PER_REGION = 3
"""Ours. Flink restarts a batch job's regions only where a strategy is configured: its default for batch is ``none``."""

_TICK_S = 0.001


class Budget(str, Enum):
    """What may have ended."""

    PER_TASK = "maximum-per-task-failures"
    LOSSES = "maximum-per-task-failures, counted for losses of its result"
    TOTAL = "maximum-total-task-failures"
    STRATEGY = "restart-strategy"


@dataclass(frozen=True)
class RestartLimits:
    """What is declared. `None` sets no limit; `of` fills in our defaults."""

    strategy: RestartStrategy = field(default_factory=ExponentialDelay)
    maximum_per_task_failures: int | None = DEFAULT_FAILURES_PER_REGION
    maximum_total_task_failures: int | None = None

    def __post_init__(self) -> None:
        for name in ("maximum_per_task_failures", "maximum_total_task_failures"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
                raise ConfigurationError(
                    f"Expected {name} to be a whole number from 1 on, or nothing for no limit, found {limit!r}: 1 ends "
                    "a region at its first failure.",
                    code="limit-unfit",
                    name=name,
                )

    @classmethod
    def of(
        cls,
        strategy: RestartStrategy | None = None,
        maximum_per_task_failures: int | None = None,
        maximum_total_task_failures: int | None = None,
    ) -> RestartLimits:
        """Limits as a user declares them.

        Three failures a region, unless a strategy is given that ends by itself: then that alone decides.
        """
        per_task = maximum_per_task_failures
        if per_task is None and (strategy is None or not strategy.ends):
            per_task = DEFAULT_FAILURES_PER_REGION
        return cls(strategy or ExponentialDelay(), per_task, maximum_total_task_failures)

    @property
    def max_restarts(self) -> int | None:
        """The most restarts that one region can get; `None` where nothing sets a number."""
        known = [number for number in (self.strategy.max_restarts,) if number is not None]
        if self.maximum_per_task_failures is not None:
            known.append(self.maximum_per_task_failures - 1)
        return min(known, default=None)


@dataclass(frozen=True)
class RestartDecision:
    """Whether a failed region may run again.

    ``delay_s``: seconds from ``now`` until it may; 0 where it may at once. ``reason`` is one sentence for a person.
    ``ended`` names the budget where ``allowed`` is false. ``counted``: failures that count against the region's budget.
    """

    allowed: bool
    delay_s: float
    reason: str
    counted: int
    ended: Budget | None = None


def decide_restart(
    limits: RestartLimits,
    region: str,
    *,
    own_s: Sequence[float],
    all_s: Sequence[float],
    now_s: float,
    uniform: Uniform,
    merges_bursts: bool = True,
) -> RestartDecision:
    """May ``region``, which has failed at the times ``own_s``, run again at ``now_s``?

    ``all_s``: the failures of all regions of the run, these included. Both in any order. No failure of its own: it may,
    at once. The random numbers are drawn in order of the failures, so one seed gives the same delays each time.
    ``merges_bursts`` is about ``all_s``: failures of one region are never a burst, as its attempts follow each other.
    """
    if not own_s:
        return RestartDecision(True, 0.0, f"{region} has not failed", 0)
    own = _in_sequence(limits.strategy, own_s, uniform)
    ended = _ended(limits, region, own, all_s, now_s, uniform, merges_bursts)
    if ended is not None:
        return RestartDecision(False, 0.0, ended[1], own.failures, ended[0])
    # A clock that is ahead elsewhere must not hold a region for longer than the strategy would (fault 33).
    backoff = own.counter.backoff_s()
    delay = min(max(0.0, max(own_s) + backoff - now_s), backoff)
    limit = limits.maximum_per_task_failures
    of_limit = f" of at most {limit}" if limit is not None else ""
    reason = f"{region} is restarted after failure {own.failures}{of_limit}, {limits.strategy.name}: in {delay:.1f} s"
    return RestartDecision(True, delay, reason, own.failures)


def decide_remake(limits: RestartLimits, region: str, losses: int) -> RestartDecision:
    """May the lost result of ``region`` be made again, after it was lost ``losses`` times? Ends an endless loss."""
    limit = limits.maximum_per_task_failures
    if limit is None:
        limit = DEFAULT_FAILURES_PER_REGION
    # A result that is lost once must always be made again, even where a region may fail only once.
    limit = max(limit, 2)
    if losses < limit:
        return RestartDecision(True, 0.0, f"the result of {region} is made again after loss {losses}", losses)
    reason = (
        f"the result of {region} was made and lost {losses} times, and {Budget.LOSSES.value}, is {limit}: something "
        "deletes or overwrites it"
    )
    return RestartDecision(False, 0.0, reason, losses, Budget.LOSSES)


@dataclass(frozen=True)
class _Count:
    failures: int
    counter: RestartCounter


def _in_sequence(strategy: RestartStrategy, times: Sequence[float], uniform: Uniform) -> _Count:
    """Failures of one region. Its attempts follow each other, so each is counted, whatever the workers' clocks say."""
    counter = counter_of(strategy, uniform)
    last: float | None = None
    for at_s in sorted(times):
        last = at_s if last is None else max(at_s, last + counter.backoff_s() + _TICK_S)
        counter.notify_failure(last)
    return _Count(len(times), counter)


def _merged(strategy: RestartStrategy, times: Sequence[float], uniform: Uniform, merges_bursts: bool) -> int:
    """Failures of many regions: those that arrive while a restart is pending are one with the one before."""
    counter = counter_of(strategy, uniform, merges_bursts=merges_bursts)
    return sum(counter.notify_failure(at_s) for at_s in sorted(times))


def _ended(
    limits: RestartLimits,
    region: str,
    own: _Count,
    all_s: Sequence[float],
    now_s: float,
    uniform: Uniform,
    merges_bursts: bool,
) -> tuple[Budget, str] | None:
    if isinstance(limits.strategy, NoRestart):
        return Budget.STRATEGY, f"{region} has failed, and {Budget.STRATEGY.value} is none"
    per_task = limits.maximum_per_task_failures
    if per_task is not None and own.failures >= per_task:
        return Budget.PER_TASK, f"{region} has failed {own.failures} times, and {Budget.PER_TASK.value} is {per_task}"
    if not own.counter.can_restart(now_s):
        text = limits.strategy.text()
        return Budget.STRATEGY, f"{region} has failed {own.failures} times, and {Budget.STRATEGY.value} is {text}"
    total = limits.maximum_total_task_failures
    if total is not None:
        failures = max(own.failures, _merged(limits.strategy, all_s, uniform, merges_bursts))
        if failures >= total:
            text = f"the regions of this run have failed {failures} times together, and {Budget.TOTAL.value} is {total}"
            return Budget.TOTAL, f"{text} ({region} has failed {own.failures} times)"
    return None
