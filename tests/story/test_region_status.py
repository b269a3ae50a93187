"""One word for a region, from what the journal and Airflow know of it."""

from __future__ import annotations

import pytest

from airflow_recovery.attempt.task_instances import TaskTry
from airflow_recovery.journal.run_state import NEVER_STARTED, Attempt, RegionState
from airflow_recovery.model.records import AttemptState, Outcome
from airflow_recovery.planning.reason import Reason, Why
from airflow_recovery.story.region_status import RegionStatus, Seen, status_of

DONE = Outcome("r", 1, AttemptState.FINISHED, "w", "now")
FINISHED = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=DONE)})
REPORTED = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=DONE, is_lost=True)})
LET_GO = RegionState({1: Attempt(1, is_claimed=True, has_outcome=True, outcome=DONE, is_released=True)})
OPEN = RegionState({1: Attempt(1, is_claimed=True)})


def must_run(why: Why) -> Reason:
    return Reason("r", why)


def task(state: str | None, ti_id: str = "now") -> TaskTry:
    return TaskTry("r", -1, 1, ti_id, state)


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (Seen(FINISHED, None, task("success")), "run"),
        (Seen(FINISHED, None, task("success"), was_kept=True), "kept"),
        (Seen(FINISHED, None, task("running")), "running"),
        (Seen(LET_GO, None, task("success"), was_kept=True), "released"),
        (Seen(OPEN, must_run(Why.NEVER_FINISHED), task("running")), "running"),
        # A driver may outlive its task. Nobody follows it where the task has ended for good.
        (Seen(OPEN, must_run(Why.NEVER_FINISHED), None), "running"),
        (Seen(OPEN, must_run(Why.NEVER_FINISHED), task("up_for_retry")), "waiting"),
        (Seen(OPEN, must_run(Why.NEVER_FINISHED), task("failed")), "failed"),
        (Seen(NEVER_STARTED, must_run(Why.NEVER_FINISHED), task(None)), "waiting"),
        (Seen(NEVER_STARTED, must_run(Why.NEVER_FINISHED), task("upstream_failed")), "waiting"),
        (Seen(NEVER_STARTED, must_run(Why.NEVER_FINISHED), task("skipped")), "skipped"),
        (Seen(NEVER_STARTED, must_run(Why.FAILED), task("up_for_retry")), "waiting"),
        (Seen(NEVER_STARTED, must_run(Why.FAILED), task("failed")), "failed"),
        (Seen(NEVER_STARTED, must_run(Why.FAILED), None), "failed"),
        (Seen(FINISHED, must_run(Why.OUTPUT_MISSING), task("success")), "lost"),
        (Seen(FINISHED, must_run(Why.INPUT_REMADE), task("success")), "waiting"),
        # A report of loss holds until a later task instance has looked.
        (Seen(REPORTED, None, task("success", "then"), reported_to="then"), "lost"),
        (Seen(REPORTED, None, task(None), reported_to="then"), "lost"),
        (Seen(REPORTED, None, task("success"), reported_to="then"), "run"),
        (Seen(REPORTED, None, None), "lost"),
    ],
)
def test_the_first_rule_that_applies(seen: Seen, status: str) -> None:
    assert status_of(seen) is RegionStatus(status)
