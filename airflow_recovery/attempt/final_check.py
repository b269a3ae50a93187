"""The final check (docs/protocol.md#final-check): before every success, whether the region has run or was kept.

Has anything that I read been superseded meanwhile? Has anybody read, or published, what I superseded? Each region
writes its finish and then reads the others'; so of two that race, one sees the other.
"""

from __future__ import annotations

import logging

from airflow_recovery.attempt.run import Run, is_untouched
from airflow_recovery.attempt.task_instances import (
    FINISHED_STATES,
    HOW_TO_CONFIGURE_CLEARS,
    RUNNING_STATES,
    ClearRequest,
    Observation,
)
from airflow_recovery.errors import ClearNotConfigured, Overtaken
from airflow_recovery.journal.events import ConsumerKept
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.reason import Reason

GREEN_STATES = RUNNING_STATES | {"success"}
"""States in which a task has reported a success, or may report one without looking again."""


def final_check(run: Run, region: str, attempt: int) -> None:
    """Returns once ``region`` may report success with ``attempt``; clears whoever rests on a superseded input.

    An inner region at its first attempt and try has superseded nobody, and its consumers look at it themselves: it
    skips this. Raises `Overtaken` where its own basis is superseded, `ClearNotConfigured` where somebody would have to
    be cleared and no way is configured.
    """
    first_try = attempt == 1 and run.task.try_number <= 1
    if run.consumers[region] and first_try:
        return
    # Observe, then list, in this order: a try that starts between the two is no longer the observed one.
    observation = None if first_try else run.task_instances.observe()
    listing = run.list()
    if is_untouched(listing.state, run.plan_hash) and not _is_blocked(observation):
        return
    if first_try:
        observation = run.task_instances.observe()
        if observation is not None:
            listing = run.list()
    state = run.load(listing=listing)
    evaluation = run.evaluate(state)
    current = evaluation.current(region)
    outcome = current.outcome if current is not None else None
    why = evaluation.why_overtaken(region, outcome.inputs if outcome is not None else None)
    if why is None and outcome is not None:
        why = evaluation.why_disconnected(region, outcome.mode)
    if current is None or why is not None:
        raise Overtaken(
            f"{region}@{attempt} was overtaken while it ran: {why.text() if why else 'it was reset'}. "
            "This task retries, and evaluates again.",
            code="overtaken-while-running",
            attempt=attempt,
        )
    republish = _why_publish_again(run, state, evaluation)
    if observation is None:
        _refuse_overtaken(run, region, evaluation, republish)
    else:
        _clear_overtaken(run, region, evaluation, observation, republish)
    _report_who_is_kept(run, region, evaluation)


def _why_publish_again(run: Run, state: RunState, evaluation: Evaluation) -> str | None:
    """What the newest publish names that is superseded: its readers would wait for it, or miss it, for ever."""
    if not run.publish_keys or not state.newest_publish:
        return None
    for region in run.journal.read_publish(state.newest_publish).regions:
        now = evaluation.current(region.region) if region.region in run.regions else None
        if now is not None and now.number != region.attempt:
            return f"publish {state.newest_publish} names {region.region}@{region.attempt}, now @{now.number}"
    return None


def _of_other_tasks(run: Run, region: str) -> list[str]:
    """Not those that this very task runs besides ``region``: it looks at them itself before it succeeds."""
    own = run.task_keys[region]
    return [other for other in run.regions if other != region and run.task_keys[other] != own]


def _clear_overtaken(
    run: Run, region: str, evaluation: Evaluation, observation: Observation, republish: str | None
) -> None:
    tries = run.tries(observation)
    targets: dict[str, str] = {}
    reasons: list[str] = []
    for other in _of_other_tasks(run, region):
        seen = tries.get(other)
        why = _why_overtaken(evaluation, other, seen.ti_id if seen is not None else None)
        if why is not None and seen is not None and seen.state in FINISHED_STATES | RUNNING_STATES:
            targets[run.task_keys[other]] = seen.ti_id
            reasons.append(why.text())
    if republish is not None:
        for key in run.publish_keys:
            task = observation.tries.get(key)
            if task is not None and task.state in FINISHED_STATES | RUNNING_STATES:
                targets[key] = task.ti_id
                reasons.append(republish)
    if targets or _is_blocked(observation):
        result = run.task_instances.clear(ClearRequest(consumers=targets, unblock=_is_blocked(observation)))
        run.log.info("Settled: %s; cleared %s.", "; ".join(reasons) or "downstream was blocked", result.cleared)


def _why_overtaken(evaluation: Evaluation, region: str, ti_id: str | None) -> Reason | None:
    """Why the task instance ``ti_id`` of a region rests on what does not count any more: its inputs, or its peers."""
    basis = evaluation.basis(region, ti_id)
    why = evaluation.why_overtaken(region, basis)
    if why is not None or basis is None:
        return why
    return evaluation.why_disconnected(region, evaluation.mode_basis(region, ti_id))


def _refuse_overtaken(run: Run, region: str, evaluation: Evaluation, republish: str | None) -> None:
    """Raises `ClearNotConfigured` where a task that has succeeded, or still may, rests on a superseded input.

    A task in any other state, above all one that was cleared by hand, begins with its own pre-check and sees what this
    region has made: asked for its state after the own finish, it can't have begun before it.
    """
    overtaken = {
        other: why
        for other in _of_other_tasks(run, region)
        if (why := _why_overtaken(evaluation, other, None)) is not None
    }
    if overtaken:
        states = run.task_instances.states([run.task_keys[name] for name in overtaken])
        clear = [other for other in overtaken if states.get(run.task_keys[other]) in GREEN_STATES]
        if clear:
            raise ClearNotConfigured(
                f"{region} has made again what others had read "
                f"({'; '.join(overtaken[other].text() for other in clear)}), and this deployment gives no way to clear "
                f"them. By hand: clear {run.task_keys[region]} with its downstream tasks in one go (or first "
                f"{', '.join(run.task_keys[other] for other in clear)}, then {run.task_keys[region]}, then what is "
                f"upstream_failed); what is still valid is kept. {HOW_TO_CONFIGURE_CLEARS}",
                code="no-way-to-clear-readers",
                region=region,
            )
    if republish is not None:
        keys = ", ".join(run.publish_keys)
        run.log.warning("%s; this deployment gives no way to clear %s: clear it by hand.", republish, keys)


def _report_who_is_kept(run: Run, region: str, evaluation: Evaluation) -> None:
    """For people: which consumers keep results that they made of an earlier attempt, and by what right."""
    for consumer in run.consumers[region]:
        current = evaluation.current(consumer)
        read = current.outcome.inputs if current is not None and current.outcome is not None else None
        for cutoff in evaluation.early_cutoffs(consumer, read):
            if cutoff.producer != region:
                continue
            # Nobody has checked it: that rows have changed all the same is worth a look (fault 51).
            level = logging.WARNING if cutoff.detail else logging.INFO
            run.log.log(level, "%s keeps its result; %s.", consumer, cutoff.text())
            run.events.record(
                ConsumerKept(
                    occurred_at=run.now(),
                    region=consumer,
                    producer=region,
                    read=cutoff.read,
                    now=cutoff.now,
                    by=cutoff.by.value,
                    detail=cutoff.detail,
                )
            )


def _is_blocked(observation: Observation | None) -> bool:
    """Somebody is stuck behind a failure that may just have been repaired (fault 65)."""
    return observation is not None and any(
        task_try.state == "upstream_failed" for task_try in observation.tries.values()
    )
