"""What a region is doing, in one word: the journal's knowledge and Airflow's together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.planning.reason import LOST_DATA, Reason, Why

_AT_WORK = frozenset({"running", "restarting", "deferred"})
_TRIES_AGAIN = frozenset({None, "scheduled", "queued", "up_for_retry", "up_for_reschedule", "running"})


class RegionStatus(str, Enum):
    """The words of the Recovery tab. The journal decides whether a result counts, Airflow whether anybody works."""

    KEPT = "kept"
    """Its result is valid, and a later try did not have to run."""

    RUN = "run"
    """Its result is valid, and nobody has asked for it twice."""

    RUNNING = "running"
    """An attempt is open, or its task looks whether it has to run."""

    WAITING = "waiting"
    """It must run, and its turn has not come; after a failure, where Airflow will try again."""

    FAILED = "failed"
    """It must run, and nobody will try again unless somebody clears its task."""

    LOST = "lost"
    """It has finished, and its data is gone or was reported gone: it runs again as soon as somebody wants it."""

    RELEASED = "released"
    """Its result is valid, and its data was let go because nobody needed it."""

    SKIPPED = "skipped"
    """Airflow has skipped its task."""


@dataclass(frozen=True)
class Seen:
    """All that `status_of` looks at. ``task`` is `None` where Airflow does not know the region's task, or is not asked.

    ``invalid`` says why the region must run. ``reported_to`` is the task instance that produced what was reported
    lost, if it was: another one has looked at it since.
    """

    state: RegionState
    invalid: Reason | None
    task: TaskTry | None
    was_kept: bool = False
    reported_to: str | None = None


def status_of(seen: Seen) -> RegionStatus:
    """One word for what is seen: the journal is asked first, then Airflow's state of the task."""
    doing = seen.task.state if seen.task is not None else None
    if seen.state.open_attempt is not None:
        return _of_open_attempt(seen)
    if doing in _AT_WORK:
        return RegionStatus.RUNNING
    current = seen.state.current
    if current is not None and current.is_lost and _is_unanswered(seen):
        return RegionStatus.LOST
    if seen.invalid is None and current is not None:
        if current.is_released:
            return RegionStatus.RELEASED
        return RegionStatus.KEPT if seen.was_kept else RegionStatus.RUN
    if doing == "skipped":
        return RegionStatus.SKIPPED
    if seen.invalid is not None and seen.invalid.why in LOST_DATA:
        return RegionStatus.LOST
    if doing == "failed":
        return RegionStatus.FAILED
    has_failed = seen.invalid is not None and seen.invalid.why is Why.FAILED
    if has_failed and (seen.task is None or doing not in _TRIES_AGAIN):
        return RegionStatus.FAILED
    return RegionStatus.WAITING


def _of_open_attempt(seen: Seen) -> RegionStatus:
    """Its driver may outlive its task, which then follows it; where the task has ended for good, nobody does."""
    if seen.task is None or seen.task.state in _AT_WORK:
        return RegionStatus.RUNNING
    return RegionStatus.FAILED if seen.task.state in ("failed", "upstream_failed") else RegionStatus.WAITING


def _is_unanswered(seen: Seen) -> bool:
    """A later task instance that has succeeded has looked at what was reported: it is there, or was made again."""
    if seen.reported_to is None or seen.task is None:
        return True
    return seen.task.ti_id == seen.reported_to or seen.task.state != "success"
