"""Recompute mode: everything runs again, once an epoch."""

from __future__ import annotations

from airflow_recovery.attempt.data_interval import check_data_interval
from airflow_recovery.attempt.run import Run
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Reset


def reset_for_epoch(run: Run, region: str, state: RunState, epoch: str) -> bool:
    """Reset what ``region`` has made before ``epoch``, if that was not done yet. True where it changed the state.

    Raises as `check_data_interval`.
    """
    region_state = state.of(region)
    if any(attempt.reset is not None and attempt.reset.epoch == epoch for attempt in region_state.attempts.values()):
        return False
    if any(
        n > region_state.reset_watermark and attempt.is_claimed and run.journal.read_claim(region, n).epoch == epoch
        for n, attempt in region_state.attempts.items()
    ):
        return False
    check_data_interval(run, region, [current.outcome] if (current := region_state.current) is not None else [])
    run.task_instances.live_check()
    who, why = run.task.airflow_run_id, f"recompute, epoch {epoch}"
    run.journal.reset(Reset(region, region_state.latest_attempt, who, why, epoch))
    return region_state.latest_attempt > region_state.reset_watermark
