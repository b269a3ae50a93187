"""The attempt that an earlier try of the same task left open."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.attempt.application import SparkApplication
from airflow_recovery.attempt.attempt_outcome import fenced
from airflow_recovery.attempt.restarts import Restarts, with_budget_ended
from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import AttemptLost, Failure
from airflow_recovery.journal.run_state import Attempt, RunState
from airflow_recovery.model.records import FenceCause

DIED = "the process of this attempt died without a word: killed, out of memory, or its worker was lost"


def fence_previous_attempt(
    run: Run,
    state: RunState,
    region: str,
    opened: Attempt,
    application: SparkApplication,
    restarts: Restarts,
    label: Callable[[Failure], Failure],
) -> None:
    """Stop what is left of the open attempt, and end it. Where it has finished meanwhile, that stays.

    Never adopted: the caller evaluates the state again (fault 4). One that lives is followed before
    (`airflow_recovery.attempt.reconnect`).
    """
    # It may be the present try's, and this process the earlier one.
    run.task_instances.live_check()
    own = None
    if opened.claim is not None:
        run.journal.noticed(opened.claim)
        own = application.failure_of(opened.claim)
        application.stop_previous(opened.claim)
    cause = restarts.cause_of_open(opened)
    if cause is FenceCause.OWN_FAILURE:
        failure = own or Failure("ProcessLost", DIED)
        detail = DIED if own is None else f"{own.type}: {own.message}"[:2000]
        ended = fenced(run, region, opened.number, cause, detail, label(failure))
        ended = with_budget_ended(ended, restarts.after_failure(state, ended))
    else:
        ended = fenced(run, region, opened.number, cause, "the next try of the task")
    try:
        run.journal.fence(ended)
        if own is not None and opened.claim is not None:
            application.forget_failure(opened.claim)
        run.log.info("Attempt %d was left open by an earlier try: fenced (%s).", opened.number, cause.value)
    except AttemptLost:
        run.log.info("Attempt %d has ended by itself; evaluating again.", opened.number)
