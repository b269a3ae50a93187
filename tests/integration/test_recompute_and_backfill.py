"""Running everything again on purpose, and running nothing again by repetition."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

DATES = ("2024-03-01", "2024-03-02", "2024-03-03")


def recreate(run: DagRun, epoch: int) -> None:
    """The same logical date as a new run in Airflow, in recompute mode."""
    run.forget()
    run.conf["recovery"] = {"mode": "recompute", "epoch": epoch}
    run.start()


def test_recompute_runs_everything_once_an_epoch(pipeline: Pipeline) -> None:
    run = pipeline.run("chain")
    assert run.start().ends().executions() == {"made": 1, "total": 1}

    # Everything again; the retry of `total` keeps what this epoch has made.
    run.make_fail_once("total")
    recreate(run, 1)
    journal = run.ends()
    assert journal.executions() == {"made": 2, "total": 3}
    assert journal.fenced("total") == ["own failure"]
    resets = [each.objects["reset"] for each in journal.attempts["made"].values() if "reset" in each.objects]
    assert [each["epoch"] for each in resets] == ["1"]
    journal.check()

    run.clear()
    assert run.ends().ran_since(journal) == {}
    assert {run.said(each)["decision"] for each in ("made", "total")} == {"kept"}

    recreate(run, 2)
    again = run.ends()
    assert again.ran_since(journal) == {"made": 1, "total": 1}
    assert again.rows("total") == [(sum(range(50)),)]
    again.check()


def test_a_backfill_that_is_repeated_starts_no_spark(pipeline: Pipeline) -> None:
    airflow = pipeline.airflow
    gates = pipeline.folder / "gates" / "backfill"
    counts = {}
    journals = {}
    for reprocess in ("none", "completed"):
        runs = pipeline.backfill("chain", DATES, reprocess, {"gates": str(gates)})
        counts[reprocess] = {each: len(list(gates.glob(f"{each}.called-*"))) for each in ("made", "total")}
        journals[reprocess] = [pipeline.journal("chain", each, "g") for each in DATES]

    assert list(counts.values()) == [{"made": 3, "total": 3}] * 2
    for first, second in zip(journals["none"], journals["completed"], strict=True):
        assert first.executions() == {"made": 1, "total": 1}
        assert set(second.keys) == set(first.keys)
        second.check()
    for run_id in runs:
        for task in ("g.made", "g.total"):
            assert airflow.task_instance("chain", run_id, task)["try_number"] >= 2
            assert airflow.xcom("chain", run_id, task)["decision"] == "kept"
