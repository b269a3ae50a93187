"""Whether a failed region is restarted, and after how long: Flink's four restart strategies.

A strategy is a frozen declaration. `counter_of` makes the object that is told of failures, as Flink's
``RestartBackoffTimeStrategy`` is: first `RestartCounter.notify_failure`, then `can_restart` and `backoff_s`. Times are
seconds on any one clock. The clock and the random number are handed in.

**Bursts.** In Flink only exponential-delay merges failures that arrive while a restart is pending into one; fixed-delay
and failure-rate count each. A Spark cluster that goes down fails many regions in one moment, so here a burst counts
once under every strategy. That is a deviation; ``merges_bursts=False`` is Flink's literal counting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.duration import flink_duration_s

Uniform = Callable[[float, float], float]
"""A random number between two bounds, such as `random.Random(seed).uniform`."""


class RestartCounter(Protocol):
    """Counts failures for one strategy. Times must not go back."""

    @property
    def attempts(self) -> int:
        """Failures counted so far; for exponential-delay, those since the backoff was last reset."""
        ...

    def notify_failure(self, at_s: float) -> bool:
        """One failure at ``at_s``. False where it is one with the failure before and does not count."""
        ...

    def can_restart(self, now_s: float) -> bool:
        """Is a restart allowed, asked at ``now_s``?"""
        ...

    def backoff_s(self) -> float:
        """How long after the last counted failure the restart may begin, in seconds.

        Raises `AssertionError` under exponential-delay where nothing has failed yet: no pause was drawn.
        """
        ...


@dataclass(frozen=True)
class NoRestart:
    """``none``: a failure is final. Flink's default for batch jobs; not ours."""

    name: ClassVar[str] = "none"
    max_delay_s: ClassVar[float] = 0.0
    max_restarts: ClassVar[int | None] = 0
    ends: ClassVar[bool] = True

    def text(self) -> str:
        """One phrase for messages."""
        return "none: no restart at all"


@dataclass(frozen=True)
class FixedDelay:
    """``fixed-delay``: up to ``attempts`` restarts, each ``delay_s`` after the failure."""

    attempts: int = 1
    delay_s: float = 1.0

    name: ClassVar[str] = "fixed-delay"
    ends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_arguments(FixedDelay.__init__, vars(self), "FixedDelay", error=ConfigurationError)
        _check(self.attempts >= 0, "fixed-delay.attempts", "at least 0", self.attempts)
        _check(self.delay_s >= 0, "fixed-delay.delay", "at least 0 s", self.delay_s)

    @property
    def max_delay_s(self) -> float:
        """The longest pause before a restart."""
        return self.delay_s

    @property
    def max_restarts(self) -> int | None:
        """How many restarts the strategy allows at most; `None` where it sets no number."""
        return self.attempts

    def text(self) -> str:
        """One phrase for messages."""
        return f"fixed-delay: attempts {self.attempts}, delay {self.delay_s:g} s"


@dataclass(frozen=True)
class FailureRate:
    """``failure-rate``: restarts until more than ``max_failures_per_interval`` failures lie within one interval."""

    max_failures_per_interval: int = 1
    failure_rate_interval_s: float = 60.0
    delay_s: float = 1.0

    name: ClassVar[str] = "failure-rate"
    ends: ClassVar[bool] = True
    max_restarts: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        check_arguments(FailureRate.__init__, vars(self), "FailureRate", error=ConfigurationError)
        key = "failure-rate.max-failures-per-interval"
        _check(self.max_failures_per_interval >= 1, key, "at least 1", self.max_failures_per_interval)
        key = "failure-rate.failure-rate-interval"
        _check(self.failure_rate_interval_s > 0, key, "above 0 s", self.failure_rate_interval_s)
        _check(self.delay_s >= 0, "failure-rate.delay", "at least 0 s", self.delay_s)

    @property
    def max_delay_s(self) -> float:
        """The longest pause before a restart."""
        return self.delay_s

    def text(self) -> str:
        """One phrase for messages."""
        return (
            f"failure-rate: max-failures-per-interval {self.max_failures_per_interval}, failure-rate-interval "
            f"{self.failure_rate_interval_s:g} s"
        )


@dataclass(frozen=True)
class ExponentialDelay:
    """``exponential-delay``: each pause is ``backoff_multiplier`` times the one before, give or take the jitter.

    The pause begins at ``initial_backoff_s`` again after ``reset_backoff_threshold_s`` without a failure.
    ``attempts_before_reset_backoff`` restarts are allowed until then; `None` (Flink's default) sets no limit.
    """

    initial_backoff_s: float = 1.0
    max_backoff_s: float = 60.0
    backoff_multiplier: float = 1.5
    reset_backoff_threshold_s: float = 3600.0
    jitter_factor: float = 0.1
    attempts_before_reset_backoff: int | None = None

    name: ClassVar[str] = "exponential-delay"

    def __post_init__(self) -> None:
        check_arguments(ExponentialDelay.__init__, vars(self), "ExponentialDelay", error=ConfigurationError)
        _check(self.initial_backoff_s > 0, "exponential-delay.initial-backoff", "above 0 s", self.initial_backoff_s)
        is_ordered = self.max_backoff_s >= self.initial_backoff_s
        _check(is_ordered, "exponential-delay.max-backoff", "at least the initial backoff", self.max_backoff_s)
        key = "exponential-delay.backoff-multiplier"
        _check(self.backoff_multiplier > 1, key, "above 1", self.backoff_multiplier)
        key = "exponential-delay.reset-backoff-threshold"
        _check(self.reset_backoff_threshold_s > 0, key, "above 0 s", self.reset_backoff_threshold_s)
        key = "exponential-delay.jitter-factor"
        _check(0 <= self.jitter_factor <= 1, key, "between 0 and 1", self.jitter_factor)
        attempts = self.attempts_before_reset_backoff
        key = "exponential-delay.attempts-before-reset-backoff"
        _check(attempts is None or attempts >= 1, key, "at least 1, or none for no limit", attempts)

    @property
    def max_delay_s(self) -> float:
        """The longest pause before a restart."""
        return self.max_backoff_s

    @property
    def max_restarts(self) -> int | None:
        """How many restarts the strategy allows at most; `None` where it sets no number."""
        return self.attempts_before_reset_backoff

    @property
    def ends(self) -> bool:
        """Whether the strategy refuses a restart by itself at some time."""
        return self.attempts_before_reset_backoff is not None

    def text(self) -> str:
        """One phrase for messages."""
        attempts = self.attempts_before_reset_backoff
        return f"exponential-delay: attempts-before-reset-backoff {'infinite' if attempts is None else attempts}"


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay
"""A declared strategy."""


def counter_of(strategy: RestartStrategy, uniform: Uniform, *, merges_bursts: bool = True) -> RestartCounter:
    """A fresh counter. ``uniform`` gives the jitter of exponential-delay; the others draw nothing.

    ``merges_bursts=False``: Flink's literal counting.
    """
    if isinstance(strategy, ExponentialDelay):
        return _Exponential(strategy, uniform)
    plain: RestartCounter
    if isinstance(strategy, FixedDelay):
        plain = _Fixed(strategy)
    elif isinstance(strategy, FailureRate):
        plain = _Rate(strategy)
    else:
        plain = _Never()
    return _Merging(plain) if merges_bursts else plain


class _Never:
    attempts = 0

    def notify_failure(self, at_s: float) -> bool:
        self.attempts += 1
        return True

    def can_restart(self, now_s: float) -> bool:
        return False

    def backoff_s(self) -> float:
        return 0.0


class _Fixed:
    def __init__(self, strategy: FixedDelay) -> None:
        self._strategy = strategy
        self.attempts = 0

    def notify_failure(self, at_s: float) -> bool:
        self.attempts += 1
        return True

    def can_restart(self, now_s: float) -> bool:
        return self.attempts <= self._strategy.attempts

    def backoff_s(self) -> float:
        return self._strategy.delay_s


class _Rate:
    def __init__(self, strategy: FailureRate) -> None:
        self._strategy = strategy
        self._last: list[float] = []
        self.attempts = 0

    def notify_failure(self, at_s: float) -> bool:
        self.attempts += 1
        self._last = [*self._last, at_s][-(self._strategy.max_failures_per_interval + 1) :]
        return True

    def can_restart(self, now_s: float) -> bool:
        if len(self._last) <= self._strategy.max_failures_per_interval:
            return True
        return now_s - self._last[0] > self._strategy.failure_rate_interval_s

    def backoff_s(self) -> float:
        return self._strategy.delay_s


class _Exponential:
    def __init__(self, strategy: ExponentialDelay, uniform: Uniform) -> None:
        self._strategy = strategy
        self._uniform = uniform
        self._next: float | None = None
        self._backoff = 0.0
        self.attempts = 0

    def notify_failure(self, at_s: float) -> bool:
        if self._next is not None:
            if at_s <= self._next:
                return False
            if at_s - self._next >= self._strategy.reset_backoff_threshold_s:
                self.attempts = 0
        self._backoff = self._draw()
        self._next = at_s + self._backoff
        self.attempts += 1
        return True

    def can_restart(self, now_s: float) -> bool:
        limit = self._strategy.attempts_before_reset_backoff
        return limit is None or self.attempts <= limit

    def backoff_s(self) -> float:
        if self._next is None:
            raise AssertionError(
                f"{self._strategy.name}: expected a failure before the pause after it is asked for, found none. Call "
                "notify_failure first."
            )
        return self._backoff

    def _draw(self) -> float:
        strategy = self._strategy
        try:
            plain = strategy.initial_backoff_s * strategy.backoff_multiplier**self.attempts
        except OverflowError:
            return strategy.max_backoff_s
        span = plain * strategy.jitter_factor
        if not math.isfinite(plain + span):
            return strategy.max_backoff_s
        drawn = plain + self._uniform(-span, span)
        return max(strategy.initial_backoff_s, min(drawn, strategy.max_backoff_s))


class _Merging:
    """A failure that arrives while the restart after the last one is pending is part of that one."""

    def __init__(self, inner: RestartCounter) -> None:
        self._inner = inner
        self._next: float | None = None

    @property
    def attempts(self) -> int:
        return self._inner.attempts

    def notify_failure(self, at_s: float) -> bool:
        if self._next is not None and at_s <= self._next:
            return False
        self._inner.notify_failure(at_s)
        self._next = at_s + self._inner.backoff_s()
        return True

    def can_restart(self, now_s: float) -> bool:
        return self._inner.can_restart(now_s)

    def backoff_s(self) -> float:
        return self._inner.backoff_s()


# --- Flink's keys ----------------------------------------------------------------------------------------------------

PREFIX = "restart-strategy."
TYPES = ("none", "fixed-delay", "failure-rate", "exponential-delay")
_ALIASES = {"off": "none", "disable": "none", "fixeddelay": "fixed-delay", "failurerate": "failure-rate",
            "exponentialdelay": "exponential-delay"}  # fmt: skip


def parse_restart_strategy(keys: Mapping[str, object]) -> RestartStrategy:
    """A strategy from Flink's configuration keys, with or without the prefix ``restart-strategy.``.

    For example ``{"type": "fixed-delay", "fixed-delay.attempts": 3, "fixed-delay.delay": "10 s"}``. What is left out
    has Flink's default. Raises `ConfigurationError` for an unknown type or key, or a value that does not fit.
    """
    settings = {str(key).removeprefix(PREFIX): value for key, value in keys.items()}
    kind = str(settings.pop("type", "")).strip().lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in TYPES:
        raise ConfigurationError(
            f"Expected restart-strategy.type to be one of {', '.join(TYPES)}, found {kind or 'nothing'!r}.",
            code="restart-strategy-unknown",
        )
    options = {key: settings.pop(key) for key in [*settings] if key.startswith(f"{kind}.")}
    # As in Flink, the keys of another type may stand there and mean nothing.
    unknown = sorted(key for key in settings if key.partition(".")[0] not in TYPES)
    known = _KEYS[kind]
    unknown += sorted(set(options) - set(known))
    if unknown:
        raise ConfigurationError(
            f"Expected the keys {', '.join(known) or 'of no option'} below {PREFIX} for type {kind}, found "
            f"{', '.join(unknown)}.",
            code="restart-options-unknown",
        )
    arguments = {known[key][0]: known[key][1](key, value) for key, value in options.items()}
    declared: RestartStrategy = _DECLARED[kind](**arguments)
    return declared


def _whole(key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if re.fullmatch(r"\d+", str(value).strip()):
        return int(str(value))
    raise ConfigurationError(
        f"Expected a whole number in {PREFIX}{key}, found {value!r}.", code="restart-option-not-whole"
    )


def _whole_or_infinite(key: str, value: object) -> int | None:
    # Flink's default is the largest int; people write "infinite".
    if str(value).strip().lower() in ("infinite", "inf", "none"):
        return None
    number = _whole(key, value)
    return None if number >= 2**31 - 1 else number


def _number(key: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError as error:
        raise ConfigurationError(
            f"Expected a number in {PREFIX}{key}, found {value!r}.", code="restart-option-not-a-number"
        ) from error


_DECLARED: dict[str, Callable[..., RestartStrategy]] = {
    "none": NoRestart,
    "fixed-delay": FixedDelay,
    "failure-rate": FailureRate,
    "exponential-delay": ExponentialDelay,
}
_KEYS: dict[str, dict[str, tuple[str, Callable[[str, object], object]]]] = {
    "none": {},
    "fixed-delay": {
        "fixed-delay.attempts": ("attempts", _whole),
        "fixed-delay.delay": ("delay_s", flink_duration_s),
    },
    "failure-rate": {
        "failure-rate.max-failures-per-interval": ("max_failures_per_interval", _whole),
        "failure-rate.failure-rate-interval": ("failure_rate_interval_s", flink_duration_s),
        "failure-rate.delay": ("delay_s", flink_duration_s),
    },
    "exponential-delay": {
        "exponential-delay.initial-backoff": ("initial_backoff_s", flink_duration_s),
        "exponential-delay.max-backoff": ("max_backoff_s", flink_duration_s),
        "exponential-delay.backoff-multiplier": ("backoff_multiplier", _number),
        "exponential-delay.reset-backoff-threshold": ("reset_backoff_threshold_s", flink_duration_s),
        "exponential-delay.jitter-factor": ("jitter_factor", _number),
        "exponential-delay.attempts-before-reset-backoff": ("attempts_before_reset_backoff", _whole_or_infinite),
    },
}


def _check(holds: bool, key: str, expected: str, found: object) -> None:
    if not holds:
        raise ConfigurationError(
            f"Expected {PREFIX}{key} to be {expected}, found {found!r}.", code="restart-option-unfit"
        )
