"""A restart budget in real Airflow: kills and exceptions count together, and no policy is asked after a kill.

numbers ~ base --+--> left ---+--> merged
                 +--> right --+
                 +--> side            lone          each may fail once; the second failure ends it
"""

from __future__ import annotations

import pytest
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

OTHERS = ("base", "right", "side", "lone_numbers", "lone")


def test_a_limit_of_two_stops_one_region_killed_once_and_failed_once_and_a_clear_by_hand_goes_on(
    pipeline: Pipeline,
) -> None:
    run = pipeline.run("limited")
    run.make_die_once("left")
    run.make_fail_once("left")

    journal = run.start().ends("failed")

    assert {other: run.state(other) for other in OTHERS} == dict.fromkeys(OTHERS, "success")
    assert (run.state("left"), run.state("merged")) == ("failed", "upstream_failed")
    assert journal.fenced("left") == ["own failure", "own failure"]
    assert {other: journal.executions()[other] for other in OTHERS} == dict.fromkeys(OTHERS, 1)
    assert "left has failed 2 times, and maximum-per-task-failures is 2" in run.log("left")

    run.clear("left")

    journal = run.ends()
    assert journal.executions()["left"] == 3
    journal.check()


@pytest.mark.drill
def test_a_clear_by_recovery_forgives_nothing(pipeline: Pipeline) -> None:
    """Beside the other tests without Airflow: `tests/attempt/test_restarts.py`, with a control."""
    run = pipeline.run("limited")
    run.make_fail_once("base")
    run.hold("left")
    run.start()
    run.wait_called("left")
    # Else one of these, too, may find its input gone, and `left` is superseded by its wake-up.
    for each in ("right", "side"):
        run.wait(lambda each=each: run.state(each) == "success", f"the success of {each}")
    run.delete("base")
    run.make_fail_once("base")

    # `left` finds its input gone and has it made again; that is the second failure of `base`.
    run.release("left")
    journal = run.ends("failed")

    assert journal.fenced("base") == ["own failure", "own failure"]
    assert journal.fenced("left") == ["lost input"]
    assert "base has failed 2 times, and maximum-per-task-failures is 2" in run.log("base")

    run.clear("base", downstream=True)
    journal = run.ends()
    assert journal.executions()["base"] == 4
    journal.check()
