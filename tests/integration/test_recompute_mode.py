"""Running everything again on purpose."""

from __future__ import annotations

import pytest
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]


def recreate(run: DagRun, epoch: int) -> None:
    """The same logical date as a new run in Airflow, in recompute mode."""
    run.forget()
    run.conf["recovery"] = {"mode": "recompute", "epoch": epoch}
    run.start()


@pytest.mark.drill
def test_recompute_runs_everything_once_an_epoch(pipeline: Pipeline) -> None:
    """Without Airflow: `tests/attempt/test_recompute.py`; a run that is forgotten and comes back: `test_rebuild.py`."""
    run = pipeline.run("chain")
    assert run.start().ends().executions() == {"made": 1, "total": 1}

    # Everything again; the retry of `total` keeps what this epoch has made.
    run.make_fail_once("total")
    recreate(run, 1)
    journal = run.ends()
    assert journal.executions() == {"made": 2, "total": 3}
    assert journal.fenced("total") == ["own failure"]
    resets = [attempt.objects["reset"] for attempt in journal.attempts["made"].values() if "reset" in attempt.objects]
    assert [reset["epoch"] for reset in resets] == ["1"]
    journal.check()

    run.clear()
    assert run.ends().ran_since(journal) == {}
    assert {run.said(name)["decision"] for name in ("made", "total")} == {"kept"}

    recreate(run, 2)
    again = run.ends()
    assert again.ran_since(journal) == {"made": 1, "total": 1}
    assert again.rows("total") == [(sum(range(50)),)]
    again.check()
