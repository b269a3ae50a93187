"""When an intermediate result may go: a policy, declared on a job or a task group, else configured.

A policy never touches a final result, nor one that a consumer still needs: those rules come first
(`airflow_recovery.results.release_rule`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import ConfigurationError, JobDefinitionError

DEFAULT_GRACE_S = 3600
"""How long the sweeper keeps data that nobody needs any more, where nothing is configured."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)([smhd])")


class ReleasePolicy(str, Enum):
    """What has to have happened before an intermediate result may go."""

    KEEP = "keep"
    """The run has been silent for some days: until then, a fix in the last step or a backfill finds its inputs."""

    ON_RUN_SUCCESS = "on-run-success"
    """The run has published its results."""

    AS_CONSUMED = "as-consumed"
    """Every consumer has finished."""


@dataclass(frozen=True)
class Retention:
    """``grace_s`` seconds after what ``policy`` waits for, an intermediate result may be deleted.

    The grace time is what keeps it for a reader that the journal does not know, and for a person who looks. Times are
    texts: ``90s``, ``30m``, ``12h``, ``7d``.
    """

    policy: ReleasePolicy
    grace_s: int

    def __post_init__(self) -> None:
        check_arguments(Retention.__init__, vars(self), "Retention")

    @classmethod
    def keep(cls, time: str = "7d") -> Retention:
        """Until the run has been silent for ``time``."""
        return cls(ReleasePolicy.KEEP, parse_duration_s(time))

    @classmethod
    def on_run_success(cls, grace: str = "0s") -> Retention:
        """Until ``grace`` after the run's newest publish."""
        return cls(ReleasePolicy.ON_RUN_SUCCESS, parse_duration_s(grace))

    @classmethod
    def as_consumed(cls, grace: str = "0s") -> Retention:
        """Until ``grace`` after the last of its consumers has finished."""
        return cls(ReleasePolicy.AS_CONSUMED, parse_duration_s(grace))

    @classmethod
    def parse(cls, text: str) -> Retention:
        """From a setting: ``7d``, ``keep 7d``, ``on-run-success``, ``as-consumed 30m``.

        Raises `ConfigurationError` for anything else.
        """
        words = text.split() if isinstance(text, str) else []
        name = words.pop(0) if words and not _DURATION.fullmatch(words[0]) else ReleasePolicy.KEEP.value
        try:
            policy = ReleasePolicy(name)
            if len(words) > 1 or (not words and policy is ReleasePolicy.KEEP):
                raise ValueError(text)
            return cls(policy, parse_duration_s(words[0]) if words else 0)
        except ValueError:
            raise ConfigurationError(
                f"Expected a retention such as '7d', 'on-run-success' or 'as-consumed 1h', found {text!r}.",
                code="retention-setting-unfit",
            ) from None

    def text(self) -> str:
        """The retention as `parse` reads it: ``as-consumed 30m``."""
        return f"{self.policy.value} {duration_text(self.grace_s)}"


def checked_retention(retention: Retention | str | None, where: str) -> Retention | None:
    """``retention`` itself, or what it says as in the configuration. Raises `JobDefinitionError` for anything else."""
    if retention is None or isinstance(retention, Retention):
        return retention
    try:
        return Retention.parse(retention)
    except ConfigurationError:
        raise JobDefinitionError(
            f"{where}: expected retention= such as '7d', 'on-run-success' or 'as-consumed 1h', found {retention!r}: "
            "write it like that, or leave it out",
            code="retention-unfit",
        ) from None


def parse_duration_s(text: str) -> int:
    """Seconds from ``90s``, ``30m``, ``12h`` or ``7d``. Raises `ConfigurationError`, which is no `ValueError`."""
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigurationError(f"Expected a duration such as 90s, 30m, 12h or 7d, found {text!r}.", code="age-unfit")
    return int(match[1]) * _UNITS_S[match[2]]


def duration_text(seconds: float) -> str:
    """The largest unit that fits, rounded down: ``7d``, ``36h``, ``90s``. `parse_duration_s` reads it."""
    for unit in ("d", "h", "m"):
        if seconds >= 2 * _UNITS_S[unit] or (seconds >= _UNITS_S[unit] and seconds % _UNITS_S[unit] == 0):
            return f"{int(seconds // _UNITS_S[unit])}{unit}"
    return f"{int(seconds)}s"


DEFAULT_RETENTION = Retention.keep()
