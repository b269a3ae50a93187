"""Early cut-off in real Airflow: a producer runs again, and three levels of consumers keep their results, or do not.

base --+--> first --> second --> third        all of them `verify`
       +--> side
"""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

LEVELS = ("first", "second", "third")
REGIONS = ("base", *LEVELS, "side")


def side_misses_base(run: DagRun) -> None:
    """`base` is lost, and the only one that needs it is `side`."""
    run.delete("base", "side")
    run.clear("side")


@pytest.mark.drill
def test_fault_51_52_verify_keeps_three_levels_of_consumers_while_rows_are_equal(pipeline: Pipeline) -> None:
    """Digests of real Spark: `tests/driver/test_digest.py`; who runs again: `tests/attempt/test_early_cutoff.py`."""
    run = pipeline.run("levels").start()
    before = run.ends()
    before.check()
    assert before.rows("third") == [(40,)]

    # Equal rows, in other files: nobody but `side` runs again, and nobody else is even cleared.
    side_misses_base(run)
    after = run.ends()
    assert after.ran_since(before) == {"base": 1, "side": 1}
    assert {run.tries(level) for level in LEVELS} == {1}
    once, again = before.manifest("base", 1), after.manifest("base", 2)
    assert once["digest"] == again["digest"]
    assert (len(once["objects"]), len(again["objects"])) == (1, 2)
    assert (after.attempts["first"][1].reads, after.attempts["side"][2].reads) == ({"base": 1}, {"base": 2})
    assert "first keeps its result; digest equal: first read base@1, now @2." in run.log("base")
    assert {publish["region"]: publish["attempt"] for publish in after.publishes[-1]["regions"]} == {
        "base": 2, "first": 1, "second": 1, "third": 1, "side": 2,
    }  # fmt: skip

    # A later crash: Airflow's database is lost, and the run comes back.
    run.forget()
    run.start()
    assert run.ends().ran_since(after) == {}
    assert {run.said(region)["decision"] for region in REGIONS} == {"kept"}
    assert "digest equal: first read base@1, now @2" in run.said("first")["why"]

    # Other rows: the digest says so, and all three levels follow.
    (run.gates / "other_rows").touch()
    side_misses_base(run)
    journal = run.ends()
    assert journal.ran_since(after) == dict.fromkeys(REGIONS, 1)
    assert journal.rows("third") == [(41,)]
    journal.check()
