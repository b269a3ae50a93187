"""A cached result in real Airflow: kept for a consumer's retry, dropped at the end of the run, then an ordinary loss.

raw ~ kept (CACHED) --> total
"""

from __future__ import annotations

import pytest
from pipeline import Pipeline, empty_folder

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

SQUARES = [(sum(n * n for n in range(9)),)]


@pytest.mark.drill
def test_a_retry_of_the_consumer_keeps_the_cached_producer_and_a_clear_after_the_end_makes_it_again(
    pipeline: Pipeline,
) -> None:
    """The same job in Airflow: `test_own_spark.py`; on a server, over Connect: `tests/driver/test_cached_views.py`."""
    lake = empty_folder(pipeline.folder / "kept")
    (lake / "a.csv").write_text("".join(f"{n}\n" for n in range(9)))
    run = pipeline.run("kept", {"lake": f"file://{lake}"})
    run.make_fail_once("total")
    run.start()
    journal = run.ends()
    journal.check()
    assert journal.executions() == {"kept": 1, "total": 2}
    assert (run.calls("kept"), run.calls("total")) == (1, 2)
    assert journal.rows("total") == SQUARES
    manifest = journal.manifest("kept")
    assert manifest["location"].startswith("spark-connect://127.0.0.1:")
    assert (manifest["objects"], manifest["rows"]) == ([], 9)
    assert "1 cached results of this run were dropped." in run.log("publish")

    # Nobody misses it, until its consumer has to run again.
    run.delete("total")
    run.clear("total", downstream=True)
    after = run.ends()
    after.check()
    assert after.ran_since(journal) == {"kept": 1, "total": 1}
    assert after.fenced("total") == ["own failure"]
    assert "it was dropped" in run.log("total", run.tries("total") - 1)
    assert after.rows("total") == SQUARES
