"""The result of an application that three others read is lost, and one of them needs it: do the other two run again?

Each way to say what becomes of them, with a program in place of Spark: `tests/task/test_drop_in_digests.py`.
"""

from __future__ import annotations

import pytest
from pipeline import Pipeline, empty_folder

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

READERS = ("by_day", "by_route", "late")


@pytest.mark.parametrize(
    ("how", "other_order", "run_again"),
    [
        ("unsaid", False, {"joined", "late"}),
        pytest.param("verify", True, {"joined", "late"}, marks=pytest.mark.drill),
        pytest.param("always", False, {"joined", *READERS}, marks=pytest.mark.drill),
    ],
)
def test_who_runs_again_after_a_result_was_lost(
    pipeline: Pipeline, how: str, other_order: bool, run_again: set[str]
) -> None:
    lake = empty_folder(pipeline.folder / "lake" / f"joined_{how}")
    (lake / "raw.csv").write_text("amount,day\n1,2013-01-01\n1,2013-01-01\n,2013-01-02\n40,2013-01-02\n")
    run = pipeline.run(f"joined_{how}")
    run.group_id = "~28operators~29"
    before = run.start().ends()
    assert before.executions() == dict.fromkeys(("joined", *READERS), 1)

    if other_order:
        (lake / "other_order").touch()
    run.delete("joined.rows", "late.report")
    run.clear("late")
    after = run.ends()
    assert after.ran_since(before) == dict.fromkeys(run_again, 1), run.log("joined")
    assert [after.rows(f"{reader}.report") for reader in READERS] == [[(42.0,)]] * 3
    once, again = before.manifest("joined.rows", 1), after.manifest("joined.rows", 2)
    if how == "always":
        assert (once.get("digest"), again.get("digest")) == (None, None)
    else:
        assert {reader for reader in READERS if run.tries(reader) == 1} == {"by_day", "by_route"}
        assert "by_day keeps its result; digest equal: by_day read joined@1, now @2." in run.log("joined")
        assert once["digest"].startswith("rows3-" if how == "verify" else "ordered1-")
        assert once["digest"] == again["digest"]
    assert len(again["objects"]) == (2 if other_order else 1)
