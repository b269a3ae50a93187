"""Where a region that commits split by split can run, and what its task says of it afterwards."""

from __future__ import annotations

import pytest
from airflow.sdk import Connection

from airflow_recovery.attempt.region_task import Decision, RegionResult
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job import files, job
from airflow_recovery.model.records import AttemptState, Outcome
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.model.result_type import BLOCKING
from airflow_recovery.splits.mode import CommittedBatchRef, LostSplit, SplitOutcome, SplitPlan
from airflow_recovery.task.split_task import MODE
from airflow_recovery.task.summary import summary_of

flights = job("flights")


@flights.source(splits=files("s3://lake/*.csv"), commit="split", result=BLOCKING)
def raw(spark, splits):
    return spark.read.csv(splits.paths)


def test_it_is_refused_over_connect_before_a_claim() -> None:
    region = RegionPlan("raw", ("raw",), ("raw",), (), True, "f", mode=SplitPlan(split_source="raw"))
    MODE.check_connection(region, flights.vertices, Connection(conn_id="local", conn_type="spark"))
    with pytest.raises(JobDefinitionError, match=r"vertex 'raw': .*spark-submit, found .*'warm'.*type 'spark'"):
        MODE.check_connection(region, flights.vertices, Connection(conn_id="warm", conn_type="spark_connect"))


def test_the_summary_says_what_was_kept_and_what_is_lost() -> None:
    batches = (CommittedBatchRef(1, 0, ("a", "b")), CommittedBatchRef(2, 0, ("c",)), CommittedBatchRef(2, 1, ("d",)))
    lost = (LostSplit("d", "s3://lake/d.csv", "ValueError: 666"),)
    outcome = Outcome("raw", 2, AttemptState.FINISHED, "w", "now", mode=SplitOutcome(batches=batches, lost_splits=lost))
    summary = summary_of(RegionResult("raw", Decision.RAN, 2, "ran; 2 of 4 splits kept", outcome))
    assert summary["splits"] == {"read": 1, "kept": 2, "lost": {"s3://lake/d.csv": "ValueError: 666"}}
    whole = Outcome("raw", 2, AttemptState.FINISHED, "w", "now")
    assert "splits" not in summary_of(RegionResult("raw", Decision.RAN, 2, "ran", whole))
