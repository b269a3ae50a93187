"""Restart limits as an operator declares them, and what contradicts them, said when the DAG is parsed.

What an argument does not say, `[recovery]` says; what that does not say is ours: exponential-delay, three failures a
region. Airflow's ``retries`` are not the budget. They are tries, and a try that only waits for the producer of a lost
input uses one too, so there must be more of them: unless somebody says else, `WAITING_TRIES` more than restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_recovery.errors import ConfigurationError, JobDefinitionError
from airflow_recovery.hooks.settings import SECTION
from airflow_recovery.model.retention import ReleasePolicy, Retention, duration_text
from airflow_recovery.planning.restart_budget import RestartLimits
from airflow_recovery.planning.restart_strategy import RestartStrategy, parse_restart_strategy

WAITING_TRIES = 10
"""Tries beside the restarts: for producers that are made again, and for stores and Airflow itself being away."""

UNLIMITED_RETRIES = 100
"""Where no number of restarts is declared."""

RetryDelay = timedelta | float

BACKOFF: Mapping[str, Any] = {
    "retry_delay": timedelta(seconds=1),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=5),
}
"""Airflow's pauses after a try that no retry policy has seen: it was killed, or the API server was away and it never
began. The scheduler counts each of these tries, so without pauses twelve retries are used up within a minute."""


@dataclass(frozen=True)
class RestartOptions:
    """What holds for one operator. ``delay_is_own``: its ``retry_delay`` is given, so the strategy's is not used."""

    limits: RestartLimits
    retries: int
    retry_delay: RetryDelay
    delay_is_own: bool


def restart_options(
    task_id: str,
    *,
    strategy: RestartStrategy | Mapping[str, Any] | None,
    maximum_per_task_failures: int | None,
    maximum_total_task_failures: int | None,
    retries: int | None,
    retry_delay: RetryDelay | None,
) -> RestartOptions:
    """The options of one operator, from its arguments and the configuration.

    Raises `JobDefinitionError` where they contradict each other (faults 71 and 72), and for a limit that is none.
    """
    try:
        configured, config_per_task, config_total = configured_limits()
        declared = parse_restart_strategy(strategy) if isinstance(strategy, Mapping) else strategy
        # A strategy given here replaces the configured one together with its number of failures.
        per_task, total = maximum_per_task_failures, maximum_total_task_failures
        if per_task is None and declared is None:
            per_task = config_per_task
        limits = RestartLimits.of(declared or configured, per_task, config_total if total is None else total)
    except ConfigurationError as error:
        raise JobDefinitionError(f"{task_id}: {error}", code=error.code, **error.fields) from error
    needed = limits.max_restarts
    is_declared = strategy is not None or maximum_per_task_failures is not None
    if is_declared and retries is not None and retries < (needed or 0):
        raise JobDefinitionError(
            f"{task_id}: expected Airflow's retries to be at least the {needed} restarts that its restart limits "
            f"allow, found retries={retries}: Airflow would end the region first. Leave retries out (it is then "
            f"{_derived(limits)}), or declare fewer failures.",
            code="retries-too-few",
        )
    own = retry_delay is not None
    options = RestartOptions(
        limits=limits,
        retries=_derived(limits) if retries is None else retries,
        retry_delay=BACKOFF["retry_delay"] if retry_delay is None else retry_delay,
        delay_is_own=own,
    )
    check_delay(task_id, options, configured_retention())
    return options


def check_delay(task_id: str, options: RestartOptions, retention: Retention | None) -> None:
    """Raises `JobDefinitionError` where inputs may be deleted while a retry is waited for (fault 71).

    Only a retention in time can do that: the other policies wait for the consumer to have finished.
    """
    if retention is None or retention.policy is not ReleasePolicy.KEEP:
        return
    delay = options.retry_delay
    own_s = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    longest_s = own_s if options.delay_is_own else options.limits.strategy.max_delay_s
    if longest_s < retention.grace_s:
        return
    name = "retry_delay" if options.delay_is_own else f"pause of restart_strategy {options.limits.strategy.name}"
    raise JobDefinitionError(
        f"{task_id}: expected the longest {name} to be shorter than the retention of results, found "
        f"{duration_text(longest_s)} and a retention of {duration_text(retention.grace_s)}: what the retry reads could "
        "be deleted before it starts. Shorten the delay, or raise [recovery] retention (or the job's).",
        code="restart-pause-outlasts-retention",
    )


def advice_on_few_retries(options: RestartOptions) -> str | None:
    """What to say in a first try whose ``retries`` somebody else set, such as a DAG's ``default_args`` (fault 72)."""
    needed = options.limits.max_restarts
    if options.retries == 0 and needed != 0:
        return (
            "Airflow's retries is 0 for this task: after a failure, or while an input is made again, it can't run "
            f"again by itself. Leave retries out for this task (it is then {_derived(options.limits)}), or pass "
            "restart_strategy=NoRestart() if that is what you want."
        )
    if needed is not None and options.retries < needed:
        return (
            f"Airflow's retries is {options.retries} for this task, and its restart limits allow {needed} restarts: "
            f"Airflow ends it first. Leave retries out for this task (it is then {_derived(options.limits)})."
        )
    return None


def configured_limits() -> tuple[RestartStrategy | None, int | None, int | None]:
    """``[recovery] restart_strategy``, ``maximum_per_task_failures``, ``maximum_total_task_failures``; `None`: not set.

    Raises `ConfigurationError` for a value that does not fit.
    """
    from airflow.sdk import conf

    text = (conf.get(SECTION, "restart_strategy", fallback="") or "").strip()
    return (
        _strategy(text) if text else None,
        _number("maximum_per_task_failures", conf.get(SECTION, "maximum_per_task_failures", fallback="")),
        _number("maximum_total_task_failures", conf.get(SECTION, "maximum_total_task_failures", fallback="")),
    )


def configured_retention() -> Retention | None:
    """``[recovery] retention``; `None` where it is not set. Raises `JobDefinitionError` where it is no retention."""
    from airflow.sdk import conf

    text = (conf.get(SECTION, "retention", fallback="") or "").strip()
    try:
        return Retention.parse(text) if text else None
    except ConfigurationError as error:
        raise JobDefinitionError(f"[recovery] retention: {error}", code=error.code, **error.fields) from error


def _strategy(text: str) -> RestartStrategy:
    import json

    if not text.startswith("{"):
        return parse_restart_strategy({"type": text})
    try:
        return parse_restart_strategy(json.loads(text))
    except ValueError as error:
        raise ConfigurationError(
            f"[recovery] restart_strategy: expected a type or a JSON object of Flink's keys, found {text!r}: {error}",
            code="restart-strategy-unfit",
        ) from error


def _number(name: str, text: str | None) -> int | None:
    if not (text or "").strip():
        return None
    try:
        return int(str(text))
    except ValueError as error:
        raise ConfigurationError(
            f"[recovery] {name}: expected a whole number, found {text!r}.", code="setting-not-a-number"
        ) from error


def _derived(limits: RestartLimits) -> int:
    return UNLIMITED_RETRIES if limits.max_restarts is None else limits.max_restarts + WAITING_TRIES
