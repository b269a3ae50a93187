"""Failover strategy ``full``: a failure restarts every region that has started (FLIP-1; PROTOCOL 1.3).

The failed region's next pre-check resets the newest attempt of every region, its own last, and then clears their tasks.
A reset names the attempt, so two regions that fail together restart the job once. A crash before the own reset does it
all again; a crash after it leaves green tasks on attempts that do not count, which publish and settle find.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.execution.run import Run
from airflow_recovery.execution.scheduler import FINISHED_STATES, RUNNING_STATES, ClearRequest, Observation
from airflow_recovery.failover.reason import LOST_DATA, Reason
from airflow_recovery.journal.records import FenceCause, Reset
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.topology.failover_strategy import FailoverStrategy


def why_restart_all(run: Run, state: RunState, region: str, why: Reason, lost: Mapping[str, Reason]) -> str | None:
    """The failure that no restart has answered yet; `None` where there is none, or the strategy is another one.

    A failure is an own attempt that failed, a result of its own that is gone, or an input that is.
    """
    if run.plan.failover_strategy is not FailoverStrategy.FULL:
        return None
    mine = state.of(region)
    newest = mine.attempts.get(mine.top)
    outcome = newest.outcome if newest is not None and mine.top > mine.mark else None
    if outcome is not None and outcome.cause in (FenceCause.OWN_FAILURE, FenceCause.LOST_INPUT):
        return f"{region}@{mine.top} ended: {outcome.cause.value}"
    return next((each.text() for each in (why, *lost.values()) if each.why in LOST_DATA), None)


def restart_all(run: Run, state: RunState, region: str, cause: str, observation: Observation | None) -> None:
    """Reset everything that has started, and clear its tasks as they were observed before ``state`` was listed.

    Without a door (``observation`` is `None`) the resets stand all the same; who may not clear others says so later.
    """
    run.scheduler.live_check()
    run.log.warning("The failover strategy is full: every region restarts, since %s.", cause)
    for name in [*(each for each in run.regions if each != region), region]:
        before = state.of(name)
        if before.top <= before.mark:
            continue
        who, why = run.task.airflow_run_id, f"failover strategy full: {cause}"
        run.journal.reset(Reset(name, before.top, who, why, failover=True))
    if observation is None:
        return
    tries = run.tries(observation)
    others = {
        run.task_keys[name]: each.ti_id
        for name, each in tries.items()
        if name != region and each.state in FINISHED_STATES | RUNNING_STATES
    }
    cleared = run.scheduler.clear(ClearRequest(consumers=others, unblock=True)).cleared
    run.log.info("Cleared: %s.", ", ".join(cleared) or "nobody, they are awake already")
