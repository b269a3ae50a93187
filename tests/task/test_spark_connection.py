"""What can run with which connection: regions that commit split by split, and a run's own Spark."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Connection
from expected_errors import fails_with

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.job import files, job
from airflow_recovery.model.records import AttemptState, Outcome, RunIdentity
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.result_type import BLOCKING
from airflow_recovery.splits.mode import CommittedBatchRef, LostSplit, SplitOutcome, SplitPlan
from airflow_recovery.splits.task import MODE
from airflow_recovery.task.open_run import RunPlace
from airflow_recovery.task.run_spark import open_run_spark
from airflow_recovery.task.summary import summary_of

flights = job("flights")


@flights.source(splits=files("s3://lake/*.csv"), commit="split", result=BLOCKING)
def raw(spark, splits):
    return spark.read.csv(splits.paths)


def test_it_is_refused_over_connect_before_a_claim() -> None:
    region = RegionPlan("raw", ("raw",), ("raw",), (), True, "f", mode=SplitPlan(split_source="raw"))
    MODE.check_connection(region, flights.vertices, Connection(conn_id="local", conn_type="spark"))
    with fails_with("batches-over-connect", where="job 'flights', vertex 'raw'", connection="warm"):
        MODE.check_connection(region, flights.vertices, Connection(conn_id="warm", conn_type="spark_connect"))


def test_the_summary_says_what_was_kept_and_what_is_lost() -> None:
    batches = (CommittedBatchRef(1, 0, ("a", "b")), CommittedBatchRef(2, 0, ("c",)), CommittedBatchRef(2, 1, ("d",)))
    lost = (LostSplit("d", "s3://lake/d.csv", "ValueError: 666"),)
    outcome = Outcome("raw", 2, AttemptState.FINISHED, "w", "now", mode=SplitOutcome(batches=batches, lost_splits=lost))
    summary = summary_of(RegionResult("raw", Decision.RAN, 2, "ran; 2 of 4 splits kept", outcome))
    assert summary["splits"] == {"read": 1, "kept": 2, "lost": {"s3://lake/d.csv": "ValueError: 666"}}
    whole = Outcome("raw", 2, AttemptState.FINISHED, "w", "now")
    assert "splits" not in summary_of(RegionResult("raw", Decision.RAN, 2, "ran", whole))


def test_it_is_submitted_by_itself_where_the_run_has_a_spark_of_its_own() -> None:
    assert RegionPlan("r", ("raw",), ("raw",), (), True, "f", mode=SplitPlan("raw")).mode.needs_own_application
    assert not RegionPlan("r", ("raw",), ("raw",), (), True, "f").mode.needs_own_application


def test_a_runs_own_spark_needs_a_connection_that_submits(tmp_path: Path) -> None:
    settings = RecoverySettings(str(tmp_path / "journal"), str(tmp_path / "results"))
    place = RunPlace(RunIdentity("d", "r", "g"), open_stores(settings), settings, settings.job_recovery.in_effect())
    for kind in ("spark", "yarn", "local"):
        assert open_run_spark(Connection(conn_id="c", conn_type=kind), place, place.identity).find() is None
    for kind in ("spark_connect", "postgres"):
        with fails_with("per-run-not-spark-submit", connection="c"):
            open_run_spark(Connection(conn_id="c", conn_type=kind), place, place.identity)
