"""What a try leaves for people: a note on its task instance, and, where it fails for good, how to repair the run."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.errors import NotMine
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.task.links import tab_url
from airflow_recovery.task.run_context import is_last_try, run_identity
from airflow_recovery.task.subtask_batch import BatchResult

if TYPE_CHECKING:
    from airflow_recovery.model.records import Outcome, Publish

log = logging.getLogger(__name__)
_MOST_NAMED = 5


def note_of(result: RegionResult | BatchResult) -> str:
    """The note on a try that has succeeded: what ran, or what was kept, and why."""
    if isinstance(result, BatchResult):
        kept = sum(subtask.decision is Decision.KEPT for subtask in result.results.values())
        return f"{len(result.results) - kept} subtasks ran, {kept} were kept"
    undeclared = undeclared_of(result.outcome)
    if result.decision is Decision.RAN:
        splits = result.why.partition("; ")[2]
        return "; ".join(filter(None, (f"ran as attempt {result.attempt}: {result.cause}", splits, undeclared)))
    saved = f", {result.seconds_saved:.0f} s of Spark saved" if result.seconds_saved >= 1 else ""
    return "; ".join(filter(None, (f"kept{saved}: {result.why}", undeclared)))


def undeclared_of(outcome: Outcome) -> str:
    """What the vertices of an attempt have read that nobody has declared; empty: nothing that was seen."""
    found = outcome.undeclared
    if not found:
        return ""
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"changes of what it reads undeclared are not noticed: {', '.join(found[:_MOST_NAMED])}{more}"


def how_to_run_again(context: Mapping[str, Any], result: RegionResult | BatchResult) -> str:
    """The end of a note on a try that kept its result: the command that runs the region again. Else empty."""
    if isinstance(result, BatchResult) or result.decision is not Decision.KEPT:
        return ""
    group = getattr(context.get("task"), "group_id", None) or OPERATORS_GROUP
    run = shlex.join([str(context["dag_run"].dag_id), run_identity(context, group).run_key, result.region])
    return f"to run it again: airflow recovery restart {run}"


def note_of_publish(publish: Publish) -> str:
    """The note on a publish: its number, and which attempts it names."""
    return f"published {publish.number}: {', '.join(f'{region.region}@{region.attempt}' for region in publish.regions)}"


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
            leave_note(context, f"{ended}: {str(error) or error.__cause__}")  # a reschedule has no text of its own
            if ended == FAILED:
                end_log_with_advice(context)
        raise
    except BaseException as error:
        if type(error).__name__ == _TIMED_OUT:
            ended = FAILED if is_last_try(context) else "not yet"
            leave_note(context, f"{ended}: {_TIMED_OUT}: the try has taken longer than execution_timeout ({error})")
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
_TIMED_OUT = "AirflowTaskTimeout"
"""Airflow's error at the end of ``execution_timeout``, which is no `Exception`."""


def _ended(error: Exception, *, is_last_try: bool) -> str:
    from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException

    if isinstance(error, AirflowSkipException):
        return "skipped"
    if isinstance(error, AirflowRescheduleException):
        return "not yet"
    return FAILED if is_last_try or isinstance(error, AirflowFailException) else "not yet"


def end_log_with_advice(context: Mapping[str, Any]) -> None:
    """Have the log of this try, which fails for good, end with `tell_how_to_repair`.

    Not declared in the DAG: for a task with a callback the scheduler of Airflow 3.3 forgets that a person has cleared
    it at its work (``max_tries`` stays), and the try that the person has ended would count as a failure.
    """
    task = getattr(context["ti"], "task", None) or context.get("task")
    if task is not None:
        task.on_failure_callback = [*task.on_failure_callback, tell_how_to_repair]


def tell_how_to_repair(context: Mapping[str, Any]) -> None:
    """A callback for ``on_failure_callback``. Airflow calls it last, behind the traceback.

    Its commands have the run's key, which is where the journal lies: for a run id all claims would be searched.
    """
    instance = context["ti"]
    dag_id, run_id = str(instance.dag_id), str(instance.run_id)
    # One that says no group is a job with the other operators of its DAG, which may have a task group besides.
    group = getattr(context.get("task"), "group_id", None) or OPERATORS_GROUP
    run = shlex.join([dag_id, run_identity(context, group).run_key, "--group", group])
    log.info(
        "What would run again, and why:  airflow recovery plan %s\n"
        "Once the cause is repaired:  airflow recovery plan %s --apply, or clear this task\n"
        "Or look, and press a button:  %s",
        run,
        run,
        tab_url(dag_id, run_id),
    )
