"""A vertex's result that is a snapshot of an Iceberg table: Spark's files, committed by pyiceberg, on real catalogs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from airflow_recovery.driver import iceberg_result
from airflow_recovery.driver.failure import describe, is_missing_input, is_user_error
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.driver.iceberg_result import driver_tables, write_iceberg
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import ConfigurationError, HoldsOther, PartitionMissing, RegionFailed, UserCodeError
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
def test_a_table_that_is_missing_is_made_by_the_same_commit(spark: SparkSession, lake: Catalog) -> None:
    made = written(spark, 1, 5, table="iceberg://lake/db.new")
    table = lake.load_table("db.new")
    assert [str(snapshot.snapshot_id) for snapshot in table.snapshots()] == [made.objects[0].path]
    assert [(field.name, str(field.field_type), field.required) for field in table.schema().fields] == [
        ("id", "long", False),
        ("at", "timestamptz", False),
        ("small", "int", False),
    ]
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(5))
    written(spark, 2, 3, table="iceberg://lake/db.new")
    assert sorted(lake.load_table("db.new").scan().to_arrow()["id"].to_pylist()) == list(range(3))


@pytest.mark.drill
def test_a_table_that_somebody_makes_meanwhile_is_written_and_not_made_anew(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CreateTableTransaction, "commit_transaction", None)
    commit = Transaction.commit_transaction

    def made_before(transaction: CreateTableTransaction) -> Table:
        monkeypatch.setattr(CreateTableTransaction, "commit_transaction", commit)
        lake.create_table("db.new", COLUMNS)
        raise CommitFailedException("it is there already")

    monkeypatch.setattr(CreateTableTransaction, "commit_transaction", made_before)
    made = written(spark, 1, 5, table="iceberg://lake/db.new")
    assert read_manifest(spark, made).count() == 5
    assert lake.load_table("db.new").scan().to_arrow().num_rows == 5


@pytest.mark.drill
def test_fault_172_a_table_is_made_once_where_the_reply_was_lost(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = CreateTableTransaction.commit_transaction

    def losing(transaction: CreateTableTransaction) -> Table:
        whole(transaction)
        raise ConnectionError("the reply was lost")

    monkeypatch.setattr(CreateTableTransaction, "commit_transaction", losing)
    made = written(spark, 1, 5, table="iceberg://lake/db.new")
    assert [str(snapshot.snapshot_id) for snapshot in lake.load_table("db.new").snapshots()] == [made.objects[0].path]


@pytest.mark.drill
def test_a_table_in_no_namespace_is_refused(spark: SparkSession, lake: Catalog) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Expected the namespace 'none' of iceberg://lake/none\.new"
    ) as refused:
        written(spark, 1, 5, table="iceberg://lake/none.new")
    assert classify(describe(refused.value)) is FailureClass.NOT_SET_UP
    assert not lake.namespace_exists("none")


@pytest.mark.drill
def test_a_driver_without_pyiceberg_is_told_what_to_install(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(
        ConfigurationError, match=r"Expected pyiceberg .* install airflow-recovery\[iceberg\]"
    ) as missing:
        written(spark, 1, 5)
    assert classify(describe(missing.value)) is FailureClass.NOT_SET_UP
    assert left_behind(lake, "db.t") == []


KINDS = {
    "n": (LongType(), "CASE WHEN id % 7 = 0 THEN NULL ELSE id * 1000003 - 4000000 END"),
    "at": (TimestamptzType(), "timestamp_micros(id * 40000000000001 - 90000000000001)"),
    "clock": (TimestampType(), "CAST(timestamp_micros(id * 3700000000001 - 90000000000001) AS TIMESTAMP_NTZ)"),
    "day": (DateType(), "date_add(DATE '1969-11-30', CAST(id * 17 AS INT))"),
    "text": (StringType(), "CASE id % 4 WHEN 0 THEN '' WHEN 1 THEN 'a/b=c%' WHEN 2 THEN 'Žluť' END"),
    "flag": (BooleanType(), "id % 2 = 0"),
    "price": (DecimalType(9, 2), "CAST(id % 3 AS DECIMAL(9, 2)) / 4"),
}
PARTITIONS = (
    *(("identity", name) for name in KINDS),
    *(("bucket[3]", name) for name in ("n", "at", "clock", "day", "text")),
    *(("truncate[3000000]", "n"), ("truncate[1]", "text")),
    *((name, column) for name in ("year", "month", "day") for column in ("at", "clock", "day")),
    *(("hour", "at"), ("hour", "clock"), ("void", "flag")),
)


def partitioned(lake: Catalog, *partitions: tuple[str, str]) -> Table:
    """A table of all `KINDS` with these partitions."""
    fields = [NestedField(at, name, kind) for at, (name, (kind, _)) in enumerate(KINDS.items(), 1)]
    numbers = {field.name: field.field_id for field in fields}
    spec = PartitionSpec(
        *(
            PartitionField(numbers[column], 1000 + at, parse_transform(transform), f"p{at}")
            for at, (transform, column) in enumerate(partitions)
        )
    )
    return lake.create_table("db.parts", Schema(*fields), partition_spec=spec)


def rows_of_kinds(spark: SparkSession, rows: int) -> DataFrame:
    columns = [
        f"CAST({sql} AS DECIMAL(9, 2)) AS {name}" if name == "price" else f"{sql} AS {name}"
        for name, (_, sql) in KINDS.items()
    ]
    return spark.range(0, rows, 1, 2).selectExpr(*columns)


def write_parts(spark: SparkSession, attempt: int, frame: DataFrame) -> PartitionManifest:
    return write_iceberg(spark, frame, commit_of(attempt, "w", "iceberg://lake/db.parts"), LOG, driver_tables())


@pytest.mark.drill
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_each_file_of_a_partitioned_table_has_the_rows_of_its_partition(
    spark: SparkSession, lake: Catalog, zone: str
) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        partitioned(lake, *PARTITIONS)
        made = write_parts(spark, 1, rows_of_kinds(spark, 24))
        rows = sorted(read_manifest(spark, made).collect(), key=str)
        assert rows == sorted(rows_of_kinds(spark, 24).collect(), key=str)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    table = lake.load_table("db.parts")
    assert (made.rows, len(table.snapshots())) == (24, 1)
    for task in table.scan().plan_files():
        for row in pyarrow.parquet.read_table(
            task.file.file_path.removeprefix("file://"), partitioning=None
        ).to_pylist():
            expected = []
            for field, (_, column) in zip(table.spec().fields, PARTITIONS, strict=True):
                kind = KINDS[column][0]
                internal = None if row[column] is None else internal_value(kind, row[column])
                expected.append(field.transform.transform(kind)(internal))
            assert list(task.file.partition._data) == expected


@pytest.mark.drill
def test_a_partitioned_table_is_found_by_its_partitions_and_replaced_as_a_whole(
    spark: SparkSession, lake: Catalog
) -> None:
    partitioned(lake, ("day", "at"), ("bucket[4]", "text"))
    write_parts(spark, 1, rows_of_kinds(spark, 24))
    made = write_parts(spark, 2, rows_of_kinds(spark, 8))
    table = lake.load_table("db.parts")
    assert table.scan().to_arrow().num_rows == 8
    chosen = table.scan(row_filter="text = 'a/b=c%'")
    assert chosen.to_arrow()["text"].to_pylist() == ["a/b=c%"] * 2
    assert len(list(chosen.plan_files())) == 2 < len(list(table.scan().plan_files()))
    assert read_manifest(spark, made).columns == list(KINDS)
    none = write_parts(spark, 3, rows_of_kinds(spark, 0))
    assert (none.rows, read_manifest(spark, none).count()) == (0, 0)


@pytest.mark.drill
def test_partitions_that_somebody_changes_meanwhile_are_written_by_the_next_attempt(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitioned(lake, ("day", "at"))

    def change() -> None:
        lake.load_table("db.parts").update_spec().add_field("day", "month").commit()
        raise CommitFailedException("the table has changed")

    Meeting(monkeypatch, before=change)
    with pytest.raises(RegionFailed, match="expected the partitions that its files were written for"):
        write_parts(spark, 1, rows_of_kinds(spark, 8))
    assert not lake.load_table("db.parts").snapshots()
    made = write_parts(spark, 2, rows_of_kinds(spark, 8))
    assert read_manifest(spark, made).count() == 8


def internal_value(kind: Any, value: Any) -> Any:
    """As Iceberg's transforms take it."""
    if isinstance(kind, DateType):
        return (value - date(1970, 1, 1)).days
    if isinstance(kind, (TimestampType, TimestamptzType)):
        return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1)
    return value


def left_behind(lake: Catalog, name: str) -> list[Path]:
    return list(Path(lake.load_table(name).location().removeprefix("file://")).glob("data/**/*"))


@pytest.mark.drill
def test_a_table_that_can_not_take_the_rows_refuses_them_before_any_is_written(
    spark: SparkSession, lake: Catalog
) -> None:
    schema = Schema(NestedField(1, "id", DoubleType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    lake.create_table("db.doubles", schema, partition_spec=spec)
    lake.create_table("db.other", Schema(NestedField(1, "id", LongType(), required=False)))
    for name, said in (
        ("doubles", r"expected partitions by bucket, .*found identity\(id\) of double\. Nothing was written"),
        ("other", r"refuses these rows: .*at.*Nothing was written"),
    ):
        with pytest.raises(UserCodeError, match=f"(?s){said}") as refused:
            written(spark, 1, 5, table=f"iceberg://lake/db.{name}")
        assert is_user_error(describe(refused.value))
        assert not lake.load_table(f"db.{name}").snapshots()
        assert left_behind(lake, f"db.{name}") == []
    with pytest.raises(UserCodeError, match="can't hold these rows"):
        write_iceberg(
            spark,
            spark.sql("SELECT INTERVAL 1 MONTH AS i"),
            commit_of(1, table="iceberg://lake/db.new"),
            LOG,
            driver_tables(),
        )
    assert not lake.table_exists("db.new")


# --- values -----------------------------------------------------------------------------------------------------------

NEW = "iceberg://lake/db.new"


def made_of(spark: SparkSession, expression: str, table: str = NEW) -> PartitionManifest:
    rows = spark.sql(f"SELECT {expression} AS v")
    return write_iceberg(spark, rows, commit_of(1, table=table), LOG, driver_tables())


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("INTERVAL '1' DAY", r"column v \(interval day\): such a table has no type for it: make a number of one unit"),
        ("INTERVAL '1' YEAR", r"column v \(interval year\): such a table has no type for it"),
        ("parse_json('1')", r"column v \(variant\): such a table has no type for it: make a string of it with to_json"),
        ("array(INTERVAL '1' DAY)", r"column v \(array<interval day>\): such a table has no type"),
        ("NULL", r"column v \(void\): such a table has no type for it"),
    ],
)
def test_fault_310_a_vertex_makes_no_table_with_a_type_that_iceberg_does_not_have(
    spark: SparkSession, lake: Catalog, expression: str, said: str
) -> None:
    with pytest.raises(UserCodeError, match=said):
        made_of(spark, expression)
    assert not lake.table_exists("db.new")


def test_fault_311_a_vertex_puts_no_bytes_into_a_column_of_text(spark: SparkSession, lake: Catalog) -> None:
    lake.create_table("db.new", pa.schema([("v", pa.string())]))
    with pytest.raises(UserCodeError, match=r"column v \(binary\) into string: a value could become another one"):
        made_of(spark, "X'00ff'")
    assert made_of(spark, "'a'").rows == 1


UNREADABLE = {
    "DATE'+10000-01-01'": r"years from 1 to 9999 in column v \(date\)",
    "TIMESTAMP'-0001-01-01 00:00:00'": r"years from 1 to 9999 in column v \(timestamp\)",
    "TIMESTAMP_NTZ'+10000-01-01 00:00:00'": r"years from 1 to 9999 in column v \(timestamp_ntz\)",
    "array(DATE'2026-01-02', NULL, DATE'0000-12-31')": r"years from 1 to 9999 in column v \(array<date>\)",
    "named_struct('a', 1, 'b', DATE'+10000-01-01')": r"years .* in column v \(struct<a: int, b: date>\)",
    "map(1, array(TIMESTAMP'+10000-01-01 00:00:00Z'))": r"years .* in column v \(map<int, array<timestamp>>\)",
    "map(DATE'+10000-01-01', 1)": r"years from 1 to 9999 in column v \(map<date, int>\)",
    "CAST(X'ff61' AS STRING)": r"texts in UTF-8 in column v \(string\)",
    "array('a', CAST(X'6dff' AS STRING), 'z')": r"texts in UTF-8 in column v \(array<string>\)",
    "array(named_struct('a', map(CAST(X'ff' AS STRING), 1)))": r"texts in UTF-8 in column v \(array<struct<a: map<",
}


@pytest.mark.parametrize("expression", UNREADABLE)
def test_fault_400_a_value_that_not_every_client_can_read_is_not_committed(
    spark: SparkSession, lake: Catalog, expression: str
) -> None:
    with pytest.raises(UserCodeError, match=f"expected {UNREADABLE[expression]}.*, found a value that not every"):
        made_of(spark, expression)
    assert not lake.table_exists("db.new")


READABLE = (
    "array(DATE'0001-01-01', NULL, DATE'9999-12-31')",
    "named_struct('a', TIMESTAMP'9999-12-31 23:59:59.999999Z', 'b', CAST(NULL AS DATE))",
    "map('é', array(TIMESTAMP_NTZ'0001-01-01 00:00:00'), '', NULL)",
    "CAST(NULL AS STRUCT<a: ARRAY<STRING>>)",
)


@pytest.mark.parametrize("expression", READABLE)
def test_a_value_that_each_client_can_read_is_committed(spark: SparkSession, lake: Catalog, expression: str) -> None:
    made = made_of(spark, expression)
    assert read_manifest(spark, made).collect() == spark.sql(f"SELECT {expression} AS v").collect()
    assert lake.load_table("db.new").scan().to_arrow().num_rows == 1


def test_a_row_that_the_result_does_not_have_is_not_checked(spark: SparkSession, lake: Catalog) -> None:
    rows = spark.sql("SELECT n, v FROM VALUES (1, DATE'+10000-01-01'), (2, DATE'2026-01-02') AS t(n, v)")
    kept = rows.join(spark.sql("SELECT n FROM VALUES (2) AS t(n)"), "n").repartition(2)
    assert write_iceberg(spark, kept, commit_of(1, table=NEW), LOG, driver_tables()).rows == 1


UNREADABLE_INSIDE = "array('a', CAST(X'6dff' AS STRING), 'z')"


@pytest.mark.control
def test_fault_400_control_unchecked_a_text_is_committed_that_pyiceberg_can_not_read(
    spark: SparkSession, lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_result, "checked", lambda rows, schema: rows)
    assert made_of(spark, UNREADABLE_INSIDE).rows == 1
    with pytest.raises(UnicodeDecodeError):
        lake.load_table("db.new").scan().to_arrow()["v"].to_pylist()


def test_a_vertex_may_return_the_members_of_a_struct_in_another_order(spark: SparkSession, lake: Catalog) -> None:
    lake.create_table("db.new", pa.schema([("v", pa.struct([("a", pa.int32()), ("b", pa.string())]))]))
    made = made_of(spark, "named_struct('b', 'x', 'a', 1)")
    assert lake.load_table("db.new").scan().to_arrow()["v"].to_pylist() == [{"a": 1, "b": "x"}]
    assert [row.v.asDict() for row in read_manifest(spark, made).collect()] == [{"b": "x", "a": 1}]


@pytest.fixture
def julian(spark: SparkSession) -> Iterator[None]:
    """As a job sets it that writes for Spark 2."""
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    yield
    spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")


def test_fault_312_an_old_date_is_written_in_the_calendar_of_today(
    spark: SparkSession, lake: Catalog, julian: None
) -> None:
    made_of(spark, "DATE'1500-01-01'")
    assert lake.load_table("db.new").scan().to_arrow()["v"].to_pylist() == [date(1500, 1, 1)]
    assert spark.conf.get("spark.sql.parquet.datetimeRebaseModeInWrite") == "LEGACY"


@pytest.mark.control
def test_fault_312_control_in_the_calendar_of_spark_2_other_readers_find_another_day(
    spark: SparkSession, lake: Catalog, julian: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_result, "_PLAIN", {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"})
    made_of(spark, "DATE'1500-01-01'")
    assert lake.load_table("db.new").scan().to_arrow()["v"].to_pylist() == [date(1500, 1, 10)]
