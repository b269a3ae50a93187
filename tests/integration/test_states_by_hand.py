"""Clear and "mark as" in Airflow's API: a wake-up is no authority, and a state by hand is no result."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

TOTAL = [(sum(range(50)),)]


@pytest.mark.parametrize("cleared", [["left"], []], ids=["one task", "whole run"])
def test_what_is_cleared_and_stands_is_kept_without_spark(finished: DagRun, cleared: list[str]) -> None:
    before = finished.journal()
    calls = {attempt: finished.calls(attempt) for attempt in before.attempts}

    assert finished.clear(*cleared)
    journal = finished.ends()

    assert set(journal.keys) == set(before.keys), "the truth has not changed by a single object"
    assert {attempt: finished.calls(attempt) for attempt in before.attempts} == calls
    for region in cleared or before.attempts:
        said = finished.said(region)
        assert (said["decision"], said["attempt"]) == ("kept", before.current(region))
        assert f"{region} is kept: attempt {said['attempt']} is valid" in finished.log(region)
    journal.check()


@pytest.mark.drill
def test_a_failed_run_that_is_cleared_keeps_what_has_finished(pipeline: Pipeline) -> None:
    """A backfill does the same to a half finished date: `test_backfill.py`."""
    run = pipeline.run("chain")
    run.make_broken("total")
    before = run.start().ends("failed")
    run.repair("total")

    run.clear(only_failed=True)
    journal = run.ends()

    assert journal.ran_since(before) == {"total": 1}
    assert journal.rows("total") == TOTAL
    assert run.tries("made") == 1
    journal.check()


@pytest.mark.drill
def test_fault_65_what_a_failure_has_blocked_runs_with_the_repair(pipeline: Pipeline) -> None:
    """In real Airflow also `tests/testing_airflow/test_clear_clients_airflow.py`, and `tests/tab`."""
    run = pipeline.run("chain")
    run.make_broken("made")
    run.start().ends("failed")
    assert run.states() == {"made": "failed", "total": "upstream_failed", "publish": "upstream_failed"}
    run.repair("made")

    assert run.clear("made") == ["g.made"]

    journal = run.ends()
    assert journal.executions() == {"made": 2, "total": 1}
    assert journal.rows("total") == TOTAL
    journal.check()


def test_fault_66_a_task_marked_success_by_hand_is_checked_by_its_consumer(pipeline: Pipeline) -> None:
    run = pipeline.run("chain")
    run.make_broken("made")
    run.start().ends("failed")
    run.repair("made")

    run.mark("made", "success")
    run.clear(only_failed=True)

    # Airflow shows it green, and there is no result: `total` had it made.
    journal = run.ends()
    assert journal.executions() == {"made": 2, "total": 1}
    assert journal.rows("total") == TOTAL
    assert run.tries("made") == 2
    assert "made: failed (attempt 1: " in run.log("total", 1)
    journal.check()


@pytest.mark.drill
def test_fault_66_a_finished_task_marked_failed_by_hand_and_cleared_is_kept(pipeline: Pipeline) -> None:
    """It is cleared and valid, as above; by a plan: `tests/attempt/test_plan_then_run.py`."""
    run = pipeline.run("chain")
    before = run.start().ends()

    run.mark("total", "failed")
    assert "g.total" in run.clear(only_failed=True)

    journal = run.ends()
    assert journal.ran_since(before) == {}
    assert run.said("total")["decision"] == "kept"
