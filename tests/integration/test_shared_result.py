"""Backfill dates that want the same result: one makes it, the others wait in the triggerer (fault 70)."""

from __future__ import annotations

import pytest
from pipeline import Pipeline, empty_folder

from airflow_recovery.model.retention import Retention
from airflow_recovery.results.sweep import Sweeper
from airflow_recovery.results.sweep_report import Action
from airflow_recovery.results.swept_run import SweepOptions
from airflow_recovery.store import open_store
from airflow_recovery.store.s3 import S3Store

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

DATES = tuple(f"2024-05-0{day}" for day in range(1, 6))


def test_fault_70_five_backfill_dates_make_a_shared_result_once(pipeline: Pipeline) -> None:
    airflow = pipeline.airflow
    gates = empty_folder(pipeline.folder / "gates" / "dimension")
    (gates / "airports.hold").touch()
    first, last = f"{DATES[0]}T00:00:00Z", f"{DATES[-1]}T00:00:00Z"
    conf = {"gates": str(gates)}
    backfill = airflow.backfill("dimension", first, last, conf=conf, max_active_runs=5)

    def waiting() -> int:
        runs = [each["dag_run_id"] for each in airflow.api("GET", "/dags/dimension/dagRuns")["dag_runs"]]
        states = [airflow.task_instance("dimension", run, "g.airports")["state"] for run in runs]
        return states.count("deferred")

    def story() -> str:
        runs = airflow.dag_runs("dimension")
        return "\n".join(airflow.describe("dimension", run["dag_run_id"]) for run in runs)

    airflow.wait_until(lambda: waiting() == 4, "four dates wait in the triggerer", story)
    (gates / "airports.hold").unlink()
    runs = airflow.wait_backfill(backfill)
    assert [run["state"] for run in runs] == ["success"] * 5
    assert {name: len(list(gates.glob(f"{name}.called-*"))) for name in ("airports", "daily")} == {
        "airports": 1,
        "daily": 5,
    }

    journals = [pipeline.journal("dimension", date, "g") for date in DATES]
    # Those that began at the same moment had claimed already: that attempt was given up, and counts as no failure.
    adopted = [journal.attempts["airports"][journal.current("airports")] for journal in journals]
    assert "own failure" not in [cause for journal in journals for cause in journal.fenced("airports")]
    shared = [each.outcome["shared"] for each in adopted]
    assert shared == [shared[0]] * 5
    for date, journal, attempt in zip(DATES, journals, adopted, strict=True):
        assert journal.executions()["daily"] == 1
        assert journal.rows("daily") == [(date, sum(range(40)))]
        # As consumed: each date has let go of it. It outlives them all.
        assert "released" in attempt.objects
    assert all(candidate.exists() for candidate in journals[0].files("airports"))

    store = S3Store(
        f"s3://{pipeline.bucket}/journal", endpoint_url=pipeline.s3.endpoint_url, session=pipeline.s3.session()
    )
    report = Sweeper(
        store, open_store(f"file://{pipeline.folder}/results"), SweepOptions(Retention.keep(), dry_run=True)
    ).sweep()
    (kept,) = [entry for entry in report.entries if entry.what.startswith(f"shared {shared[0]['key']}")]
    assert (kept.action, kept.why) == (Action.KEPT, "it outlives runs: --purge")
