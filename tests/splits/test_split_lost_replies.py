"""Every write of the protocol has its effect, and loses its reply, on real S3 servers."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark_split_run import REGION, SparkSplitRun

from airflow_recovery.journal import journal as journal_module
from airflow_recovery.journal.journal import Journal
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.s3_server import REGION as S3_REGION
from scripts.s3_proxy import LostReply, S3Proxy, S3Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.s3]

BUCKET = "split-journal"


class Losses:
    """The first reply to each conditional write is lost, whatever it says."""

    def __init__(self) -> None:
        self.lost: set[str] = set()

    def __call__(self, request: S3Request) -> LostReply | None:
        if not request.is_conditional or request.key in self.lost:
            return None
        self.lost.add(request.key)
        return LostReply()


def run_behind(proxy: S3Proxy, server: S3Server, spark: SparkSession, folder: Path) -> SparkSplitRun:
    """Its journal is reached through ``proxy``; its data is on the disk."""
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    stores = S3Store(uri, endpoint_url=proxy.endpoint_url, session=server.session())
    spark_run = SparkSplitRun(
        folder, spark, journal=StoreSpec(uri, proxy.endpoint_url, S3_REGION), open_journal=lambda: stores
    )
    spark_run.write_files(8)
    return spark_run


def test_fault_57_no_split_is_lost_or_counted_twice(
    spark: SparkSession, tmp_path: Path, one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_s3_server.create_bucket(BUCKET)
    losses = Losses()
    with S3Proxy(one_s3_server, losses) as proxy:
        spark_run = run_behind(proxy, one_s3_server, spark, tmp_path)
        spark_run.fail_after(2, monkeypatch)
        outcome = spark_run.go().outcome
        assert spark_run.numbers(outcome) == [*range(8)]
        assert outcome.outputs[0].digest == spark_run.at_once()[0].digest
        assert (spark_run.batches(1), spark_run.batches(2)) == (2, 2)
    written = {each.rpartition("/")[2] for each in losses.lost if f"/{REGION}/" in each}
    batches = {f"0000000{attempt}.part-000{number}" for attempt in (1, 2) for number in (0, 1)}
    assert written == {"00000001.claim", "00000001.outcome", "00000002.claim", "00000002.outcome", *batches}


def test_control_who_does_not_read_back_takes_its_own_batch_for_anothers(
    spark: SparkSession, tmp_path: Path, one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_s3_server.create_bucket(BUCKET)
    put = Journal._put

    def not_mine(journal, record, key, is_mine):
        return put(journal, record, key, (lambda found: False) if ".part-" in key else is_mine)

    with S3Proxy(one_s3_server, Losses()) as proxy:
        spark_run = run_behind(proxy, one_s3_server, spark, tmp_path)
        monkeypatch.setattr(journal_module.Journal, "_put", not_mine)
        with pytest.raises(Exception, match=r"part-0000"):
            spark_run.go()
    assert spark_run
