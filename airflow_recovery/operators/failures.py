"""Our errors as Airflow's: what a retry can cure goes to UP_FOR_RETRY, what it can't fails at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_recovery import errors

NOT_CURED_BY_RETRY = (
    errors.ConfigurationError,
    errors.FingerprintError,
    errors.InputUnreachable,
    errors.JobDefinitionError,
    errors.NoDoor,
    errors.OutputAltered,
    errors.RecordInvalid,
    errors.StoreAccessDenied,
    errors.StoreMisconfigured,
    errors.StoreUnsuitable,
    errors.UserCodeError,
)
"""The same try would end the same way: fail with the reason, so that somebody looks (faults 27 and 78)."""


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Inside a task: raise `AirflowFailException` and `AirflowSkipException` where they are meant, else what came."""
    try:
        yield
    except NOT_CURED_BY_RETRY as error:
        from airflow.sdk.exceptions import AirflowFailException

        raise AirflowFailException(str(error)) from error
    except errors.InputSkipped as error:
        from airflow.sdk.exceptions import AirflowSkipException

        raise AirflowSkipException(str(error)) from error
