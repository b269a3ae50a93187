"""A vertex's result that is a snapshot of an Iceberg table: Spark's files, committed by pyiceberg, on real catalogs."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from airflow_recovery.driver import iceberg_result
from airflow_recovery.driver.failure import describe, is_missing_input, is_user_error
from airflow_recovery.driver.iceberg_result import driver_tables, write_iceberg
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import HoldsOther, PartitionMissing, UserCodeError
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.results.tables import tag_of, token_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LOG = logging.getLogger("test_iceberg_result")
KEY = RegionKey("d", "r", "g", "make")
TAG = tag_of("s3://journal", KEY, 1)
COLUMNS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("small", pa.int32())])


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    monkeypatch.setenv(catalog_variable("lake"), json.dumps(properties))
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("db")
    catalog.create_table("db.t", COLUMNS)
    return catalog


def frame(spark: SparkSession, rows: int) -> DataFrame:
    made = spark.range(0, rows, 1, 2)
    return made.selectExpr("id", "timestamp_micros(id * 1000001) AS at", "CAST(id AS SMALLINT) AS small")


def commit_of(attempt: int, writer: str = "w", table: str = "iceberg://lake/db.t") -> TableCommit:
    return TableCommit("made", table, f"{KEY.path}#made", attempt, token_of(KEY, attempt, writer), TAG)


def written(
    spark: SparkSession, attempt: int, rows: int, writer: str = "w", table: str = "iceberg://lake/db.t"
) -> PartitionManifest:
    return write_iceberg(spark, frame(spark, rows), commit_of(attempt, writer, table), LOG, driver_tables())


def on_top(lake: Catalog, rows: int) -> None:
    """Somebody else puts rows of theirs in place of all that the table has."""
    at = [datetime(2026, 1, 1, tzinfo=timezone.utc)] * rows
    lake.load_table("db.t").overwrite(
        pa.table({"id": range(rows), "at": at, "small": pa.array(range(rows), "i4")}, COLUMNS)
    )


def test_fault_173_an_attempts_snapshot_is_read_whatever_is_committed_and_a_zombie_is_refused(
    spark: SparkSession, lake: Catalog
) -> None:
    on_top(lake, 7)
    made = written(spark, 1, 5)
    table = lake.load_table("db.t")
    [registered] = made.objects
    assert (made.location, made.managed, made.rows) == ("iceberg://lake/db.t", False, 5)
    assert (registered.path, registered.etag) == (
        str(table.metadata.current_snapshot_id),
        str(table.metadata.table_uuid),
    )
    assert registered.size > 0
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(5)), "others read it as Iceberg"
    assert table.metadata.refs[TAG].snapshot_id == int(registered.path)

    newer = written(spark, 2, 3, "x")
    on_top(lake, 9)
    with pytest.raises(HoldsOther, match="found attempt 2 of 'made' there"):
        written(spark, 1, 8, "zombie")
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 9
    read = read_manifest(spark, newer)
    assert sorted(map(tuple, read.collect())) == sorted(map(tuple, frame(spark, 3).collect()))
    assert read_manifest(spark, made).count() == 5


@pytest.mark.drill
def test_fault_173_control_without_its_number_a_zombie_replaces_what_is_newer(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = written(spark, 2, 3)
    monkeypatch.setattr(iceberg_result, "_committed", lambda *_: None)
    written(spark, 1, 8, "zombie")
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 8
    assert read_manifest(spark, newer).count() == 3, "readers are given the registered snapshot all the same"


class Meeting:
    """The first commit of this process meets something: ``before`` it, or ``after``, when its reply is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, before: Any = None) -> None:
        self.calls = 0
        whole = Transaction.commit_transaction

        def commit(transaction: Transaction) -> Table:
            self.calls += 1
            if self.calls > 1:
                return whole(transaction)
            if before is not None:
                before()
                self.calls = 9
                return whole(transaction)
            whole(transaction)
            raise ConnectionError("the reply was lost")

        monkeypatch.setattr(Transaction, "commit_transaction", commit)


@pytest.mark.drill
def test_fault_172_a_commit_whose_reply_was_lost_is_found(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    Meeting(monkeypatch)
    made = written(spark, 1, 5)
    snapshots = [one for one in lake.load_table("db.t").snapshots() if iceberg_result.snapshot_token(one)]
    assert [str(one.snapshot_id) for one in snapshots] == [made.objects[0].path]


@pytest.mark.drill
def test_fault_172_control_without_its_token_the_attempt_has_failed(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    Meeting(monkeypatch)
    monkeypatch.setattr(iceberg_result, "_committed", lambda *_: None)
    with pytest.raises(ConnectionError, match="the reply was lost"):
        written(spark, 1, 5)
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 5


@pytest.mark.drill
def test_another_commit_that_came_between_is_replaced_as_well(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_top(lake, 7)
    Meeting(monkeypatch, before=lambda: on_top(lake, 9))
    written(spark, 1, 5)
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 5


@pytest.mark.drill
def test_a_zombie_that_has_looked_before_the_newer_attempt_committed_is_refused(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_top(lake, 7)
    Meeting(monkeypatch, before=lambda: written(spark, 2, 3, "x"))
    with pytest.raises(HoldsOther):
        written(spark, 1, 5)
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 3


@pytest.mark.drill
def test_no_rows_are_a_snapshot_too(spark: SparkSession, lake: Catalog) -> None:
    on_top(lake, 7)
    made = written(spark, 1, 0)
    assert made.rows == 0
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 0
    assert read_manifest(spark, made).columns == ["id", "at", "small"]
    assert read_manifest(spark, made).count() == 0


@pytest.mark.drill
def test_a_branch_is_written_and_main_is_not(spark: SparkSession, lake: Catalog) -> None:
    on_top(lake, 7)
    table = lake.load_table("db.t")
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "audit").commit()
    made = written(spark, 1, 5, table="iceberg://lake/db.t?branch=audit")
    assert read_manifest(spark, made).count() == 5
    assert lake.load_table("db.t").scan().to_arrow().num_rows == 7


@pytest.mark.drill
def test_fault_171_a_snapshot_that_has_expired_is_a_hint_to_look(spark: SparkSession, lake: Catalog) -> None:
    made = written(spark, 1, 5)
    on_top(lake, 7)
    lake.load_table("db.t").manage_snapshots().remove_tag(TAG).commit()
    lake.load_table("db.t").maintenance.expire_snapshots().by_id(int(made.objects[0].path)).commit()
    with pytest.raises(PartitionMissing, match="has expired") as lost:
        read_manifest(spark, made)
    assert is_missing_input(describe(lost.value))


@pytest.mark.drill
def test_a_table_that_can_not_take_the_rows_refuses_them(spark: SparkSession, lake: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    lake.create_table("db.parts", schema, partition_spec=spec)
    lake.create_table("db.other", schema)
    for name, said in (("parts", "expected a table without partitions"), ("other", "refuses these rows: .*at")):
        with pytest.raises(UserCodeError, match=said) as refused:
            written(spark, 1, 5, table=f"iceberg://lake/db.{name}")
        assert is_user_error(describe(refused.value))
        assert not lake.load_table(f"db.{name}").snapshots()
