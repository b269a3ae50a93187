"""A failover that restarts more than the region itself: the one place that resets others' attempts.

See docs/protocol.md#principles.

    strategy ``full`` (FLIP-1)         a failure restarts every region that has started
    a coordinator without snapshots    a subtask that must run again takes all subtasks of its vertex along

The failed region's next pre-check resets the newest attempt of each of them, its own last, and then clears their tasks.
A reset names the attempt, so two regions that fail together restart the others once. A crash before the own reset does
it all again; a crash after it leaves green tasks on attempts that do not count, which publish and the final check find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_recovery.attempt.run import Run
from airflow_recovery.attempt.task_instances import FINISHED_STATES, RUNNING_STATES, ClearRequest, Observation
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.records import FenceCause, Reset
from airflow_recovery.planning.coordinators import VertexRestarts, cause_of, has_started, restarted_with
from airflow_recovery.planning.reason import LOST_DATA, Reason


@dataclass(frozen=True)
class FailoverRestart:
    """The regions ``others`` restart with ``region``. ``answers``: the attempt of it that takes them along."""

    region: str
    others: tuple[str, ...]
    what: str
    cause: str
    answers: str | None = None


def failover_restart(
    run: Run, state: RunState, region: str, why: Reason, lost: Mapping[str, Reason]
) -> FailoverRestart | None:
    """The restart of others that no reset has answered yet, now that ``region`` must run; `None`: there is none."""
    failure = _failure(state, region, why, lost) if run.plan.failover_strategy is FailoverStrategy.FULL else None
    if failure is not None:
        others = tuple(other for other in run.regions if other != region)
        return FailoverRestart(region, others, "the failover strategy is full", failure)
    planned = run.regions[region]
    cause = VertexRestarts(run.today, state).why(planned, why)
    if cause is None or planned.subtask is None:
        return None
    what = f"all subtasks of {planned.subtask.of} restart together"
    return FailoverRestart(region, restarted_with(run.today, planned), what, cause, cause_of(region, state.of(region)))


def _failure(state: RunState, region: str, why: Reason, lost: Mapping[str, Reason]) -> str | None:
    """An own attempt that failed, a result of its own that is gone, or an input that is."""
    region_state = state.of(region)
    newest = region_state.attempts.get(region_state.latest_attempt)
    outcome = (
        newest.outcome if newest is not None and region_state.latest_attempt > region_state.reset_watermark else None
    )
    if outcome is not None and outcome.cause in (FenceCause.OWN_FAILURE, FenceCause.LOST_INPUT):
        return f"{region}@{region_state.latest_attempt} ended: {outcome.cause.value}"
    return next((reason.text() for reason in (why, *lost.values()) if reason.why in LOST_DATA), None)


def restart_others(run: Run, state: RunState, restart: FailoverRestart, observation: Observation | None) -> None:
    """Reset what has started of them, and clear its tasks as they were observed before ``state`` was listed.

    Without a clear client (``observation`` is `None`) the resets count all the same; who can't clear says so later.
    """
    run.task_instances.live_check()
    run.log.warning("%s: %s, since %s.", restart.region, restart.what, restart.cause)
    started = [name for name in (*restart.others, restart.region) if has_started(state.of(name))]
    for name in started:
        who, why = run.task.airflow_run_id, f"{restart.what}: {restart.cause}"
        run.journal.reset(Reset(name, state.of(name).latest_attempt, who, why, failover=True, answers=restart.answers))
    if observation is None:
        return
    tries = run.tries(observation)
    others = {
        run.task_keys[name]: tries[name].ti_id
        for name in restart.others
        if name in tries and tries[name].state in FINISHED_STATES | RUNNING_STATES
    }
    cleared = run.task_instances.clear(ClearRequest(consumers=others, unblock=True)).cleared
    run.log.info("Cleared: %s.", ", ".join(cleared) or "nobody, they run already")
