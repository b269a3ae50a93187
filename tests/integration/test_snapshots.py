"""An enumerator and a coordinator with snapshots (FLIP-383), in real Airflow with real Spark.

given[a], given[b] --> seen ~ drops
"""

from __future__ import annotations

import pytest
from pipeline import Pipeline, empty_folder

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


@pytest.mark.drill
def test_new_ones_go_on_where_those_before_them_were(pipeline: Pipeline) -> None:
    """In real Spark: `tests/driver/test_coordinator_in_driver.py`; who is restored: `tests/attempt`."""
    lake = empty_folder(pipeline.folder / "drops")
    for number in ("10", "11"):
        (lake / number).touch()
    run = pipeline.run("snapshots", {"lake": str(lake)})
    first = run.start().ends()
    assert first.rows("seen") == [(number,) for number in (0, 1, 2, 3, 10, 11)]
    began = lake.with_suffix(".began")
    assert began.read_text().split()[0] == "0"

    (lake / "12").touch()
    began.unlink()
    run.delete_outputs("given[a]")
    run.clear("seen", downstream=True)
    second = run.ends()

    second.check()
    assert second.ran_since(first) == {"given[a]": 1, "seen": 1}
    assert second.rows("seen") == [(number,) for number in (0, 1, 2, 3, 10, 11, 12)]
    assert began.read_text().split()[0] == "2", "a new enumerator yields only what comes after"
    assert "0" not in began.read_text().split()
