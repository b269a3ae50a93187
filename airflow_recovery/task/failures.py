"""Our errors as Airflow's: what a retry can cure goes to UP_FOR_RETRY, what it can't fails at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_recovery import errors

log = logging.getLogger(__name__)


def times_rescheduled(context: Mapping[str, Any]) -> int:
    """Return how often Airflow has rescheduled this try of the task."""
    return int(context.get("task_reschedule_count") or 0)


def pause_before_look_s(looks: int) -> float:
    """Return the seconds until a task that waits is started again, which has looked so many times before."""
    from airflow_recovery.planning.restart_strategy import ExponentialDelay

    pauses = ExponentialDelay()
    return min(pauses.initial_backoff_s * pauses.backoff_multiplier ** min(looks, 50), pauses.max_backoff_s)


@contextmanager
def airflow_errors(*, is_last_try: bool = False, looks: int = 0) -> Iterator[None]:
    """Inside a task: raise `AirflowFailException` and `AirflowSkipException` where they are meant, else what came.

    ``is_last_try``: Airflow has no retry left. What a retry might have cured then says so, and that it is not the
    region's own budget which has ended (fault 72). A task that waits for another one is rescheduled, which uses no
    retry (fault 352). ``looks``: as `times_rescheduled`.
    """
    try:
        yield
    except errors.InputPending as error:
        from airflow.sdk.exceptions import AirflowRescheduleException

        pause_s = pause_before_look_s(looks)
        log.info("%s It looks again in %.1f s.", error, pause_s)
        then = datetime.now(timezone.utc) + timedelta(seconds=pause_s)
        raise AirflowRescheduleException(then) from error  # type: ignore[no-untyped-call]
    except errors.InputSkipped as error:
        from airflow.sdk.exceptions import AirflowSkipException

        raise AirflowSkipException(str(error)) from error
    except errors.RecoveryError as error:
        from airflow.sdk.exceptions import AirflowFailException

        if error.kind.is_final:
            raise AirflowFailException(str(error)) from error
        if not is_last_try:
            raise
        raise AirflowFailException(
            f"{error} Airflow's own retries have ended with this try; the region's restart budget "
            "(maximum-per-task-failures and the others) has not. Clear this task to go on, and raise its retries, or "
            "leave them out."
        ) from error
