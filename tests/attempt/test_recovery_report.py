"""Time saved: one definition, for the tab, the DAG's tab and the notifier.

a --> b --> c        c may not be there
"""

from __future__ import annotations

import pytest

from airflow_recovery.attempt.recovery_report import recovered
from airflow_recovery.journal.run_state import Attempt, RegionState, RunState
from airflow_recovery.model.records import AttemptState, Outcome, PlanRecord, Reset
from airflow_recovery.model.region_plan import RegionPlan

JOB: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("b",)}
PLAN = PlanRecord(
    "job",
    tuple(RegionPlan(name, (name,), (name,), inputs, False, "f") for name, inputs in JOB.items()),
)


def attempt(
    region: str,
    number: int,
    state: AttemptState,
    seconds: float | None = 10.0,
    *,
    reset: Reset | None = None,
    minute: int = 0,
) -> Attempt:
    outcome = Outcome(region, number, state, "w", f"2026-01-01T00:{minute:02}:00.5+00:00", "f", spark_seconds=seconds)
    return Attempt(number, is_claimed=True, has_outcome=True, outcome=outcome, is_reset=reset is not None, reset=reset)


def done(region: str, number: int = 1, seconds: float | None = 10.0, *, minute: int = 0) -> Attempt:
    return attempt(region, number, AttemptState.FINISHED, seconds, minute=minute)


def failed(region: str, number: int = 1) -> Attempt:
    return attempt(region, number, AttemptState.FENCED)


def run(**regions: tuple[Attempt, ...]) -> RunState:
    return RunState({name: RegionState({each.number: each for each in found}) for name, found in regions.items()})


def test_a_run_without_trouble_has_saved_nothing() -> None:
    found = recovered(PLAN, run(a=(done("a"),), b=(done("b"),)))
    assert (found.again, found.spared, found.seconds_saved) == ((), (), 0.0)


def test_what_ran_once_while_another_ran_twice_was_spared() -> None:
    found = recovered(PLAN, run(a=(done("a"),), b=(failed("b"), done("b", 2))))
    assert (found.again, found.spared, found.seconds_saved) == (("b",), ("a",), 10.0)


def test_what_ran_for_the_first_time_after_the_repair_was_not_spared() -> None:
    repaired = (failed("b"), done("b", 2, minute=3))
    found = recovered(PLAN, run(a=(done("a", minute=1),), b=repaired, c=(done("c", minute=4),)))
    assert (found.spared, found.seconds_saved) == (("a",), 10.0)


def test_while_the_repair_is_running_all_that_stands_is_spared() -> None:
    running = Attempt(2, is_claimed=True)
    assert recovered(PLAN, run(a=(done("a", minute=9),), b=(failed("b"), running))).spared == ("a",)


def test_what_does_not_stand_was_not_spared() -> None:
    found = recovered(PLAN, run(a=(failed("a"),), b=(failed("b"), done("b", 2))))
    assert (found.spared, found.seconds_saved) == ((), 0.0)


def test_a_finished_run_that_was_cleared_and_is_kept_as_a_whole_has_saved_all_of_it() -> None:
    found = recovered(PLAN, run(a=(done("a"),), b=(done("b"),)), kept={"a", "b"})
    assert (found.again, found.spared, found.seconds_saved) == ((), ("a", "b"), 20.0)


def test_a_region_that_ran_twice_and_is_kept_then_counts_once_with_what_counts() -> None:
    state = run(a=(done("a"),), b=(failed("b"), done("b", 2, 7.0)))
    assert recovered(PLAN, state, kept=["b", "a", "a"]).seconds_saved == 17.0


def test_what_nobody_measured_is_not_made_up() -> None:
    found = recovered(PLAN, run(a=(done("a", seconds=None),), b=(failed("b"), done("b", 2))))
    assert (found.spared, found.seconds_saved) == (("a",), 0.0)


@pytest.mark.parametrize("failover", [True, False])
def test_only_a_persons_reset_is_by_hand(failover: bool) -> None:
    reset = Reset("a", 1, "ann", "why", failover=failover)
    state = run(a=(attempt("a", 1, AttemptState.FINISHED, reset=reset), done("a", 2)), b=(done("b"),))
    assert recovered(PLAN, state).by_hand is not failover
