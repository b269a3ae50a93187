"""FLIP-383's options under their own names: whether a job recovers at all, and how its event store writes.

Declared on a job, a task group or an operator as a mapping of Flink's keys, else configured in ``[recovery]``. Using
these operators is the explicit activation that the FLIP asks for, so ``enabled`` is true here (Flink: false).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.model.duration import flink_duration_s

ENABLED = "execution.batch.job-recovery.enabled"
PREVIOUS_WORKER_TIMEOUT = "execution.batch.job-recovery.previous-worker.recovery.timeout"
SNAPSHOT_MIN_PAUSE = "execution.batch.job-recovery.snapshot.min-pause"
BUFFER_SIZE = "job-event.store.write-buffer.size"
FLUSH_INTERVAL = "job-event.store.write-buffer.flush-interval"
ON_FAILURE = "job-event.store.on-failure"
"""Not Flink's, where a store that fails turns itself off in silence."""

MAX_BUFFER_BYTES = 32 * 1024 * 1024
"""A segment, a full buffer and the largest event behind it, is still one that is read."""

_BYTES = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class OnStoreFailure(str, Enum):
    """What becomes of a task whose events could not be written."""

    DEGRADE = "degrade"
    """It goes on and says so; the history of the run has a hole, which a reader sees."""

    FAIL = "fail"
    """It fails, although its region has finished. The next try keeps the region, and tells of it again."""


@dataclass(frozen=True)
class JobRecovery:
    """The options in effect, each with its default. Times are in seconds, the buffer's size in bytes."""

    enabled: bool = True
    buffer_bytes: int = 1024 * 1024
    flush_interval_s: float = 1.0
    snapshot_min_pause_s: float = 180.0
    previous_worker_timeout_s: float = 30.0
    on_store_failure: OnStoreFailure = OnStoreFailure.DEGRADE


@dataclass(frozen=True)
class DeclaredJobRecovery:
    """The options as far as one place says them; `None`: not said there."""

    enabled: bool | None = None
    buffer_bytes: int | None = None
    flush_interval_s: float | None = None
    snapshot_min_pause_s: float | None = None
    previous_worker_timeout_s: float | None = None
    on_store_failure: OnStoreFailure | None = None

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> DeclaredJobRecovery:
        """From Flink's keys, such as ``{"job-event.store.write-buffer.size": "4 mb"}``.

        Raises `ConfigurationError` for an unknown key, or a value that does not fit.
        """
        unknown = sorted(set(options) - set(_KEYS))
        if unknown:
            raise ConfigurationError(
                f"Expected the options {', '.join(_KEYS)}, found {', '.join(map(str, unknown))}.", code="option-unknown"
            )
        read: dict[str, Any] = {_KEYS[key][0]: _KEYS[key][1](key, value) for key, value in options.items()}
        return cls(**read)

    def over(self, other: DeclaredJobRecovery) -> DeclaredJobRecovery:
        """What is said here, and for the rest what ``other`` says."""
        return replace(other, **{name: value for name, value in vars(self).items() if value is not None})

    def in_effect(self) -> JobRecovery:
        """With the defaults for what nobody says."""
        declared = {name: value for name, value in vars(self).items() if value is not None}
        return JobRecovery(**declared)


NOTHING_DECLARED = DeclaredJobRecovery()
ALL_DEFAULTS = DeclaredJobRecovery(**vars(JobRecovery()))


def declared_job_recovery(
    options: Mapping[str, object] | DeclaredJobRecovery | None, where: str
) -> DeclaredJobRecovery:
    """What a job, group or operator declares. Raises `JobDefinitionError`."""
    if options is None:
        return NOTHING_DECLARED
    if isinstance(options, DeclaredJobRecovery):
        return options
    try:
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"Expected a mapping of options, found {options!r}.", code="options-no-mapping")
        return DeclaredJobRecovery.parse(options)
    except ConfigurationError as error:
        raise JobDefinitionError(f"{where}, job_recovery=: {error}", code=error.code, **error.fields) from error


def _switch(key: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"Expected true or false for {key}, found {value!r}.")
    return text == "true"


def _size_bytes(key: str, value: object) -> int:
    match = _SIZE.fullmatch(str(value).strip().lower())
    if match is None or isinstance(value, bool) or match[2] not in _BYTES:
        raise ConfigurationError(f"Expected a size such as 1 mb or 512 kb for {key}, found {value!r}.")
    size = float(match[1]) * _BYTES[match[2]]
    if not 1 <= size <= MAX_BUFFER_BYTES:
        raise ConfigurationError(f"Expected {key} to be between 1 b and {MAX_BUFFER_BYTES >> 20} mb, found {value!r}.")
    return int(size)


def _interval_s(key: str, value: object) -> float:
    seconds = flink_duration_s(key, value)
    if not 0 < seconds <= 3600:
        raise ConfigurationError(f"Expected {key} to be above 0 and at most 1 h, found {value!r}.")
    return seconds


def _pause_s(key: str, value: object) -> float:
    seconds = flink_duration_s(key, value)
    if not 0 <= seconds < math.inf:
        raise ConfigurationError(f"Expected {key} to be 0 s or more, found {value!r}.")
    return seconds


def _on_failure(key: str, value: object) -> OnStoreFailure:
    try:
        return OnStoreFailure(str(getattr(value, "value", value)).strip().lower())
    except ValueError:
        names = ", ".join(failure.value for failure in OnStoreFailure)
        raise ConfigurationError(
            f"Expected {key} to be one of {names}, found {value!r}.", code="option-value-unknown", key=key
        ) from None


_KEYS: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    ENABLED: ("enabled", _switch),
    BUFFER_SIZE: ("buffer_bytes", _size_bytes),
    FLUSH_INTERVAL: ("flush_interval_s", _interval_s),
    SNAPSHOT_MIN_PAUSE: ("snapshot_min_pause_s", _pause_s),
    PREVIOUS_WORKER_TIMEOUT: ("previous_worker_timeout_s", _pause_s),
    ON_FAILURE: ("on_store_failure", _on_failure),
}

SETTINGS = {
    "job_recovery_enabled": ENABLED,
    "job_event_store_write_buffer_size": BUFFER_SIZE,
    "job_event_store_write_buffer_flush_interval": FLUSH_INTERVAL,
    "job_event_store_on_failure": ON_FAILURE,
    "job_recovery_snapshot_min_pause": SNAPSHOT_MIN_PAUSE,
    "previous_worker_timeout": PREVIOUS_WORKER_TIMEOUT,
}
"""Airflow's names of the options, in its section ``[recovery]``: the name there, and Flink's key."""
