"""Our errors as Airflow's: what a retry can cure goes to UP_FOR_RETRY, what it can't fails at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from airflow_recovery import errors

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 30.0
"""The pause of a task that waits. After a short one the task may fail: a scheduler that starts the same try again
before it has heard of the end of its process takes the task for killed. Airflow's sensors pause for 60 s."""


@contextmanager
def airflow_errors(*, is_last_try: bool = False) -> Iterator[None]:
    """Inside a task: raise `AirflowFailException` and `AirflowSkipException` where they are meant, else what came.

    ``is_last_try``: Airflow has no retry left. What a retry might have cured then says so, and that it is not the
    region's own budget which has ended (fault 72). A task that waits for another one is rescheduled, which uses no
    retry (fault 352).
    """
    try:
        yield
    except errors.InputPending as error:
        from airflow.sdk.exceptions import AirflowRescheduleException

        log.info("%s It looks again in %.0f s.", error, LOOK_AGAIN_S)
        then = datetime.now(timezone.utc) + timedelta(seconds=LOOK_AGAIN_S)
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
