"""The note that a try leaves on its task instance: kept or ran, and why, in one line. For people; best effort."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.errors import NotMine
from airflow_recovery.task.repair_advice import end_log_with_advice
from airflow_recovery.task.run_context import is_last_try
from airflow_recovery.task.subtask_batch import BatchResult

if TYPE_CHECKING:
    from airflow_recovery.model.records import Publish

log = logging.getLogger(__name__)


def note_of(result: RegionResult | BatchResult) -> str:
    """Of a try that has succeeded."""
    if isinstance(result, BatchResult):
        kept = sum(each.decision is Decision.KEPT for each in result.results.values())
        return f"{len(result.results) - kept} subtasks ran, {kept} were kept"
    if result.decision is Decision.RAN:
        splits = result.why.partition("; ")[2]
        return "; ".join(filter(None, (f"ran as attempt {result.attempt}: {result.cause}", splits)))
    saved = f", {result.seconds_saved:.0f} s of Spark saved" if result.seconds_saved >= 1 else ""
    return f"kept{saved}: {result.why}"


def note_of_publish(publish: Publish) -> str:
    """Of a publish."""
    return f"published {publish.number}: {', '.join(f'{each.region}@{each.attempt}' for each in publish.regions)}"


@contextmanager
def noting_failure(context: Mapping[str, Any]) -> Iterator[None]:
    """A try that ends with an error says so in its note, and one that fails for good says how to repair it.

    A process that is not the task's any more says nothing.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, NotMine) and not isinstance(error.__cause__, NotMine):
            ended = _ended(error, is_last_try=is_last_try(context))
            leave_note(context, f"{ended}: {error}")
            if ended == FAILED:
                end_log_with_advice(context)
        raise


def leave_note(context: Mapping[str, Any], text: str) -> None:
    """Give the task instance of ``context`` this note, masked. Never raises: the log and the journal say the same."""
    from airflow_recovery.hooks.clear_clients import open_clear_client
    from airflow_recovery.hooks.masking import mask_secrets
    from airflow_recovery.hooks.settings import RecoverySettings

    try:
        open_clear_client(context, RecoverySettings.load().api_conn_id).note(mask_secrets(text))
    except Exception as error:
        log.debug("No note was left: %s", error)


FAILED = "failed"


def _ended(error: Exception, *, is_last_try: bool) -> str:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    if isinstance(error, AirflowSkipException):
        return "skipped"
    return FAILED if is_last_try or isinstance(error, AirflowFailException) else "not yet"
