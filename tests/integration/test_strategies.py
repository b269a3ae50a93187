"""FLIP-1's strategies in real Airflow: which regions run again, exactly.

made --+--> total
       +--> side            aside

Under `region` the failed one alone would: `test_failures_and_losses.py`.
"""

from __future__ import annotations

import pytest
from pipeline import Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

REGIONS = ("aside", "made", "side", "total")
ROWS = {"total": [(sum(range(50)),)], "side": [(49,)], "aside": [(number,) for number in range(7)]}


def test_full_restarts_every_region_that_has_started_and_cancels_what_is_running(pipeline: Pipeline) -> None:
    run = pipeline.run("full")
    run.hold("total", "side")
    run.start()
    for name in ("total", "side"):
        run.wait_called(name)
    run.wait(lambda: run.state("aside") == "success", "the success of aside")
    run.make_fail_once("total")

    run.release("total")
    run.wait_called("side", 2)  # the first process is still held: it was cancelled
    run.release("side")
    journal = run.ends()

    assert journal.executions() == dict.fromkeys(REGIONS, 2)
    assert {region: journal.fenced(region) for region in REGIONS} == {
        "aside": [], "made": [], "side": ["superseded"], "total": ["own failure"],
    }  # fmt: skip
    resets = {region: journal.attempts[region][1].objects["reset"] for region in REGIONS}
    assert {reset["why"] for reset in resets.values()} == {"the failover strategy is full: total@1 ended: own failure"}
    assert {row: journal.rows(row) for row in ROWS} == ROWS
    journal.check()


@pytest.mark.drill
def test_recovery_mode_job_level_restarts_the_job_and_names_no_region_that_never_started(pipeline: Pipeline) -> None:
    """Another name of the strategy above: `tests/job/test_failover_strategy.py`."""
    run = pipeline.run("job_level")
    run.hold("made")
    run.start()
    run.wait(lambda: run.state("aside") == "success", "the success of aside")
    run.wait_called("made")
    run.make_fail_once("made")

    run.release("made")
    run.wait(lambda: run.state("made") != "running", "the failure of made")
    # Who ends a check while aside is between its start and its claim has it cleared once more: made waits for it.
    run.hold("made")
    run.wait_called("made", 2)
    run.wait(lambda: run.state("aside") == "success", "the second success of aside")
    run.release("made")
    journal = run.ends()

    assert journal.executions() == {"aside": 2, "made": 2, "side": 1, "total": 1}
    assert sorted(region for region in REGIONS if "reset" in journal.attempts[region][1].objects) == ["aside", "made"]
    assert {row: journal.rows(row) for row in ROWS} == ROWS
    journal.check()


@pytest.mark.drill
def test_individual_restarts_the_failed_region_and_what_it_misses_and_no_reader(pipeline: Pipeline) -> None:
    """Without Airflow: `tests/attempt/test_full_restart.py`; `full`, in Airflow: above."""
    run = pipeline.run("individual")
    run.make_fail_once("total")
    before = run.start().ends()
    assert before.executions() == {"aside": 1, "made": 1, "side": 1, "total": 2}
    before.check()

    run.delete("made", "total")
    run.clear("total")
    journal = run.ends()

    assert journal.ran_since(before) == {"made": 1, "total": 1}
    # The other reader is not even looked at: it keeps rows of an attempt that is superseded.
    assert run.tries("side") == 1
    assert journal.attempts["side"][1].reads == {"made": 1}
    assert journal.attempts["total"][3].reads == {"made": 2}
    assert {publish["region"]: publish["attempt"] for publish in journal.publishes[-1]["regions"]} == {
        "aside": 1, "made": 2, "side": 1, "total": 3,
    }  # fmt: skip
    assert {row: journal.rows(row) for row in ROWS} == ROWS
