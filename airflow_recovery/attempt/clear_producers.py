"""The failover: report what is lost, clear its producers, stop those who read what will be made again.

See docs/protocol.md#clear.

A clear has no authority. Each cleared region's own pre-check evaluates with the same pure function; so a clear that is
doubled, late, or lost in a crash does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.attempt.declarations import ask_declared
from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    HOW_TO_CONFIGURE_CLEARS,
    MARKED_FAILED,
    REMOVED_STATE,
    RUNNING_STATES,
    ClearRequest,
    ClearResult,
    Observation,
    TaskTry,
)
from airflow_recovery.errors import (
    ClearNotConfigured,
    InputFailed,
    InputLost,
    InputSkipped,
    InputUnreachable,
    ObjectMissing,
)
from airflow_recovery.journal.events import FailoverPlanned, RegionSkipped
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Lost
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan_making import plan_of
from airflow_recovery.planning.plan_text import brief, plan_line
from airflow_recovery.planning.reason import Reason, Why


def clear_producers(
    run: Run, evaluation: Evaluation, caller: str, lost: Mapping[str, Reason], observation: Observation
) -> InputLost:
    """Report and clear. Returns the exception for the caller to raise: its retry waits for the producers.

    ``observation`` was made before the listing that ``evaluation`` rests on. Raises `InputSkipped` where a producer was
    skipped in this run, `InputFailed` where a person has marked it as failed, `InputUnreachable` where its task was
    removed from the run, or where it has verified its result since an earlier report and this process still does not
    see it.
    """
    tries = run.tries(observation)
    _refuse_what_no_clear_brings_back(run, caller, lost, {region: each.state for region, each in tries.items()})
    plan = _report(run, evaluation, caller, lost, tries)
    request = ClearRequest(
        producers={run.task_keys[region]: tries[region].ti_id for region in lost if region in tries},
        consumers=_readers(run, evaluation, caller, lost, observation),
    )
    result = run.task_instances.clear(request)
    _refuse_what_was_marked(run, caller, lost, result)
    gone = tuple(
        InputRef(region, attempt.number) for region in lost if (attempt := evaluation.current(region)) is not None
    )
    run.events.record(FailoverPlanned(occurred_at=run.now(), region=caller, lost=gone, plan=plan))
    reasons = "; ".join(reason.text() for reason in lost.values())
    why = f"{caller} can't run before {', '.join(lost)} has: {reasons}."
    absent = [region for region in lost if region not in tries]
    if absent:
        return InputLost(
            f"{why} Cleared: {', '.join(result.cleared) or 'nobody'}. Airflow has no task instance of "
            f"{', '.join(absent)} in this run, as where a DAG has grown and one of its tasks alone was cleared. Clear "
            "the whole run on the DAG's latest version (what is valid is kept), or trigger a new one.",
            code="input-not-in-run",
            absent=list(absent),
        )
    cleared = ", ".join(result.cleared) or "nobody: they run already"
    past = ""
    waiting = sorted(key for region in lost if (key := run.task_keys[region].partition("[")[0]) in run.waits_for_past)
    if waiting:
        past = (
            f" {', '.join(waiting)} has depends_on_past: Airflow starts it only after its task of the previous run has "
            "succeeded. If it does not start, look at that one."
        )
    return InputLost(
        f"{why} Cleared: {cleared}. This task retries by itself when they are done.{past}",
        code="input-cleared",
        lost={region: reason.why.name for region, reason in lost.items()},
        cleared=list(result.cleared),
    )


def refuse_without_clear_client(
    run: Run, evaluation: Evaluation, caller: str, lost: Mapping[str, Reason]
) -> ClearNotConfigured:
    """The error where producers would have to be cleared and nothing is configured to do it.

    The loss is reported all the same, so that a producer that is cleared by hand looks at its data. Raises as
    `clear_producers` where a producer was skipped or removed: what it did any task may ask.
    """
    states = run.task_instances.states([run.task_keys[region] for region in lost])
    _refuse_what_no_clear_brings_back(run, caller, lost, {region: states.get(run.task_keys[region]) for region in lost})
    _report(run, evaluation, caller, lost, {})
    reasons = "; ".join(reason.text() for reason in lost.values())
    return ClearNotConfigured(
        f"{caller} can't run before {', '.join(lost)} has ({reasons}), and this deployment gives no way to clear "
        f"another task. By hand: clear {', '.join(run.task_keys[region] for region in lost)}, each with its downstream "
        f"tasks, this one among them; what is still valid is kept. {HOW_TO_CONFIGURE_CLEARS}",
        code="no-way-to-clear",
        caller=caller,
        lost={region: reason.why.name for region, reason in lost.items()},
    )


def _refuse_what_no_clear_brings_back(
    run: Run, caller: str, lost: Mapping[str, Reason], states: Mapping[str, str | None]
) -> None:
    """Raises `InputSkipped` for a producer that was skipped, and `InputUnreachable` for one that was removed.

    ``states`` are those of the producers' tasks, by region.
    """
    skipped = [region for region in lost if states.get(region) == "skipped"]
    if skipped:
        run.events.record(RegionSkipped(occurred_at=run.now(), region=caller, why=f"{skipped[0]} was skipped"))
        raise InputSkipped(
            f"{caller} reads {', '.join(skipped)}, which was skipped in this run and has no result from an earlier "
            f"attempt that is valid and there ({lost[skipped[0]].text()}). {caller} is skipped as well; clear "
            f"{skipped[0]} to have it made.",
            code="lost-input-was-skipped",
            caller=caller,
            skipped=list(skipped),
        )
    removed = [region for region in lost if states.get(region) == REMOVED_STATE]
    if removed:
        raise InputUnreachable(
            f"{caller} can't run before {', '.join(lost)} has, and Airflow has removed {', '.join(removed)} from this "
            "run: the version of the DAG that the run uses has no such task. Clear the whole run on the DAG's latest "
            "version.",
            code="input-removed-from-run",
            removed=list(removed),
        )


def _refuse_what_was_marked(run: Run, caller: str, lost: Mapping[str, Reason], result: ClearResult) -> None:
    """Raises `InputFailed` for a producer that a person has marked as failed: it has no result in this run."""
    marked = [region for region in lost if result.unmoved.get(run.task_keys[region], (0, ""))[1] == MARKED_FAILED]
    if marked:
        raise InputFailed(
            f"{caller} can't run before {marked[0]} has ({lost[marked[0]].text()}). A person has marked {marked[0]} as "
            f"failed, so it has no result in this run, and recovery does not clear it. Clear {marked[0]} with its "
            "downstream tasks to go on.",
            code="input-marked-failed",
            marked=marked[0],
        )


def _report(
    run: Run, evaluation: Evaluation, caller: str, lost: Mapping[str, Reason], tries: Mapping[str, TaskTry]
) -> tuple[tuple[str, str], ...]:
    """Write `.lost` for each result that is gone. Returns what will run and why, as it is shown to a person."""
    # A clear must not wait for data that nobody but a person's curiosity wants: nothing is asked for it.
    # The task that publishes is no region: it waits for those that must run.
    failed = [caller] if caller in run.regions else list(filter(evaluation.is_decided, lost))
    planned = plan_of(evaluation, ask=False, failed=failed)
    plan = brief(planned)
    run.log.info("The failover as planned: %s.", plan_line(planned, len(run.today.regions)))
    for region, reason in lost.items():
        attempt = evaluation.current(region)
        if attempt is not None and reason.why is Why.DECLARED_OTHERWISE:
            ask_declared(run, caller, attempt)
        # Nothing is reported of a region that is not valid: there is no result that could be gone.
        if attempt is None or evaluation.invalid_because(region) is not None:
            continue
        seen = tries.get(region)
        if attempt.is_lost and seen is not None and seen.state == "success":
            _check_reachable(run, caller, region, attempt.number, seen.ti_id, reason)
        producer = seen.ti_id if seen is not None else ""
        own = run.task.airflow_run_id
        run.journal.report_lost(Lost(region, attempt.number, caller, (reason.text(),), producer, plan, own))
    return plan


def _check_reachable(run: Run, caller: str, region: str, attempt: int, ti_id: str, reason: Reason) -> None:
    """No ping-pong: the producer was cleared for this very loss, and is a success again.

    What another DAG run of this key has reported, it has cleared its own producer for.
    """
    try:
        report = run.journal.read_lost(region, attempt)
    except ObjectMissing:
        return
    is_of_this_run = report.airflow_run_id in (None, run.task.airflow_run_id)
    if is_of_this_run and report.producer_ti_id and report.producer_ti_id != ti_id:
        raise InputUnreachable(
            f"{caller} does not see the result of {region}@{attempt} ({reason.text()}), but {region} was cleared for "
            "that and is a success again. If it has looked itself: unreachable from here, not lost; compare what this "
            "worker and that one see (mounts, credentials, endpoint). Was it marked by hand: clear it, and it looks.",
            code="input-seen-elsewhere",
        )


def _readers(
    run: Run, evaluation: Evaluation, caller: str, lost: Mapping[str, Reason], observation: Observation
) -> dict[str, str]:
    """Consumers that rest on what will be made again, and run again whatever that writes (forward cancellation).

    Not those that may turn out to be valid: they are looked at when the producer has finished (`final_check`).
    """
    tries = run.tries(observation)
    readers: dict[str, str] = {}
    for producer in lost:
        current = evaluation.current(producer)
        if current is None:
            continue
        for consumer in run.consumers[producer]:
            seen = tries.get(consumer)
            if consumer == caller or consumer in lost or seen is None:
                continue
            if not evaluation.always_follows(consumer, producer):
                continue
            if seen.state not in FINISHED_STATES | RUNNING_STATES:
                continue
            if evaluation.attempt_in(evaluation.basis(consumer, seen.ti_id), producer) == current.number:
                readers[run.task_keys[consumer]] = seen.ti_id
    return readers
