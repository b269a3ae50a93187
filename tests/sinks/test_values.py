"""A value is the same after it was committed, or the commit is refused by name: the smallest cover of docs/values.md.

The whole matrix is in test_value_matrix.py, for `make drill`.
"""

from __future__ import annotations

import datetime
import io
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField
from staging import Resources, Warehouse, token

from airflow_recovery.errors import SinkRefused, SinkUnavailable
from airflow_recovery.model import spark_types
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.sinks import Committable, DeltaTable, IcebergTable, PostgresTable, postgres_columns
from airflow_recovery.sinks import delta as delta_module
from airflow_recovery.sinks import iceberg as iceberg_module
from airflow_recovery.sinks import postgres as postgres_module
from airflow_recovery.sinks import staged as staged_module
from airflow_recovery.sinks.postgres_columns import Fit
from airflow_recovery.store.local import LocalStore

HALF_AN_HOUR = pa.array([1_800_000_000, None], pa.int64())
MONTHS = pa.array([14, None], pa.int32())
DAY_TIME, YEAR_MONTH = "interval day to second", "interval year to month"


def staged(
    folder: Path, *files: dict[str, tuple[Any, pa.Array]], metadata: dict[bytes, bytes] | None = None
) -> Committable:
    """Files as Spark would leave them: ``{column: (its type in Spark's JSON, its values)}`` of each."""
    store, objects = LocalStore(str(folder / "results")), []
    for at, columns in enumerate(files):
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, (kind, _) in columns.items()]
        footer = {spark_types.FOOTER: json.dumps({"type": "struct", "fields": fields}).encode()}
        footer |= {b"org.apache.spark.version": b"4.2.0", **(metadata or {})}
        table = pa.table({name: values for name, (_, values) in columns.items()}).replace_schema_metadata(footer)
        body = io.BytesIO()
        pyarrow.parquet.write_table(table, body)
        info = store.put(f"delays/part-{at}.parquet", body.getvalue())
        objects.append(ResultObject(f"part-{at}.parquet", info.size, info.etag))
    return Committable(token(), PartitionManifest("delays", f"{store.base_uri}/delays", tuple(objects)))


class Column:
    """A table in PostgreSQL with one column ``v``."""

    def __init__(self, warehouse: Warehouse, kind: str) -> None:
        self.warehouse, self.name = warehouse, f"{warehouse.schema}.one"
        warehouse.ask(f"CREATE TABLE {self.name} (v {kind})")

    def commit(self, given: Committable) -> None:
        PostgresTable(conn_id="warehouse", table=self.name).open(self.warehouse.resources).commit(given)

    @property
    def texts(self) -> list[str | None]:
        return [row[0] for row in self.warehouse.ask(f"SELECT v::text FROM {self.name}")]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("kind", "values", "found"), [(DAY_TIME, HALF_AN_HOUR, "00:30:00"), (YEAR_MONTH, MONTHS, "1 year 2 mons")]
)
def test_fault_310_an_interval_is_an_interval_in_postgresql(
    warehouse: Warehouse, tmp_path: Path, kind: str, values: pa.Array, found: str
) -> None:
    into = Column(warehouse, "interval")
    into.commit(staged(tmp_path, {"v": (kind, values)}))
    assert into.texts == [found, None]


@pytest.mark.postgres
@pytest.mark.parametrize("target", ["bigint", "text", "double precision"])
def test_fault_310_an_interval_is_no_number_and_no_text(warehouse: Warehouse, tmp_path: Path, target: str) -> None:
    into = Column(warehouse, target)
    with pytest.raises(SinkRefused, match=rf"column v \({DAY_TIME}\) into {target}: make the table's column interval"):
        into.commit(staged(tmp_path, {"v": (DAY_TIME, HALF_AN_HOUR)}))
    assert into.texts == []


@pytest.mark.postgres
def test_fault_310_control_without_sparks_type_it_is_a_number(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = staged(tmp_path, {"v": (DAY_TIME, HALF_AN_HOUR)})
    monkeypatch.setattr(spark_types, "FOOTER", b"another key")
    into = Column(warehouse, "bigint")
    into.commit(given)
    assert into.texts == ["1800000000", None]


UNFIT = [
    (DAY_TIME, HALF_AN_HOUR, DAY_TIME),
    (YEAR_MONTH, MONTHS, YEAR_MONTH),
    ({"type": "array", "elementType": "interval day", "containsNull": True}, pa.array([[1]]), "array<interval day>"),
    ("variant", pa.array([{"metadata": b"", "value": b""}]), "variant"),
]


@pytest.mark.parametrize(("kind", "values", "said"), UNFIT)
def test_fault_310_a_delta_table_is_not_made_with_a_column_that_it_can_not_hold(
    tmp_path: Path, kind: Any, values: pa.Array, said: str
) -> None:
    into = DeltaTable(uri=str(tmp_path / "table")).open(Resources())
    with pytest.raises(SinkRefused, match=rf"column v \({said}\): such a table has no type for it"):
        into.commit(staged(tmp_path, {"v": (kind, values)}))
    assert not (tmp_path / "table").exists()


def test_fault_310_control_without_sparks_type_a_delta_table_has_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = staged(tmp_path, {"v": (YEAR_MONTH, MONTHS)})
    monkeypatch.setattr(spark_types, "FOOTER", b"another key")
    DeltaTable(uri=str(tmp_path / "table")).open(Resources()).commit(given)
    assert deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["v"].to_pylist() == [14, None]


class Lake(Resources):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def catalog_properties(self, name: str) -> dict[str, str]:
        return {"type": "sql", "uri": f"sqlite:///{self._folder}/c.db", "warehouse": f"file://{self._folder}/w"}


def test_fault_310_an_iceberg_table_takes_no_interval_for_a_number(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    catalog = load_catalog("lake", **lake.catalog_properties("lake"))
    catalog.create_namespace("db")
    catalog.create_table("db.t", pa.schema([("v", pa.int64())]))
    into = IcebergTable(uri="iceberg://lake/db.t").open(lake)
    with pytest.raises(SinkRefused, match=rf"column v \({DAY_TIME}\) into bigint"):
        into.commit(staged(tmp_path, {"v": (DAY_TIME, HALF_AN_HOUR)}))
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 0
    into.commit(staged(tmp_path, {"v": ("integer", pa.array([7], pa.int32()))}))
    assert catalog.load_table("db.t").scan().to_arrow()["v"].to_pylist() == [7]


MOMENT = pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)])
CLOCK = pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)])
BY_VALUE = [
    ("decimal(10,4)", pa.array([Decimal("1.2345")]), "numeric(10,2)", None),
    ("decimal(10,4)", pa.array([Decimal("1.2300")]), "numeric(10,2)", "1.23"),
    ("long", pa.array([2**53 + 1]), "double precision", None),
    ("long", pa.array([2**40]), "integer", None),
    ("long", pa.array([7]), "integer", "7"),
    ("double", pa.array([0.1]), "real", None),
    ("float", pa.array([0.1], pa.float32()), "double precision", "0.10000000149011612"),
    ("double", pa.array([0.1]), "numeric", "0.1"),
    ("double", pa.array([0.1 + 0.2]), "numeric", "0.30000000000000004"),
    ("double", pa.array([12.34]), "numeric(10,2)", "12.34"),
    ("double", pa.array([12.345]), "numeric(10,2)", None),
    ("double", pa.array([7.0]), "integer", "7"),
    ("double", pa.array([7.5]), "integer", None),
    ("double", pa.array([1.5]), "text", "1.5"),
    ("decimal(10,2)", pa.array([Decimal("0.10")]), "double precision", "0.1"),
    ("string", pa.array(["ab"]), "character(3)", "ab"),
    ("string", pa.array(["ab "]), "character(4)", None),
    ("string", pa.array(["1.5"]), "numeric(10,2)", "1.50"),
    ("string", pa.array(["1.234"]), "numeric(10,2)", None),
    ("string", pa.array(["007"]), "numeric", None),
    ("string", pa.array(["1 hour"]), "interval", "01:00:00"),
    ("string", pa.array([r"\."]), "interval", None),
    ("string", pa.array(["7"]), "interval", None),
    ("string", pa.array(["10.0.0.1"]), "inet", "10.0.0.1/32"),
    ("string", pa.array(["2026-01-02T03:04:05"]), "timestamp without time zone", "2026-01-02 03:04:05"),
    ("string", pa.array(["2026-01-02T03:04:05Z"]), "timestamp without time zone", None),
    ("string", pa.array(["2026-01-02 03:04:05"]), "timestamp with time zone", None),
    ("string", pa.array(["now"]), "timestamp with time zone", None),
    ("string", pa.array(["abc"]), "character(3)", "abc"),
    ("string", pa.array(["abcd"]), "character varying(3)", None),
    ("string", pa.array(["007"]), "integer", None),
    ("string", pa.array(["a\0b"]), "text", None),
    ("string", pa.array(["{"]), "json", None),
    ("timestamp", MOMENT, "timestamp without time zone", "2026-01-02 03:04:05.678901"),
    ("timestamp", MOMENT, "text", "2026-01-02 03:04:05.678901Z"),
    ("timestamp", MOMENT, "timestamp(3) without time zone", None),
    ("timestamp_ntz", CLOCK, "timestamp with time zone", None),
    ("timestamp", MOMENT, "timestamp(3) with time zone", None),
    ("date", pa.array([datetime.date(2026, 1, 2)]), "timestamp without time zone", "2026-01-02 00:00:00"),
]


@pytest.mark.postgres
@pytest.mark.parametrize(("kind", "values", "target", "found"), BY_VALUE)
def test_fault_311_a_value_that_would_be_another_one_is_refused(
    warehouse: Warehouse, tmp_path: Path, kind: str, values: pa.Array, target: str, found: str | None
) -> None:
    into, given = Column(warehouse, target), staged(tmp_path, {"v": (kind, values)})
    if found is not None:
        into.commit(given)
        assert into.texts == [found]
        return
    with pytest.raises(SinkRefused, match=r"column v \(.*\) into ") as refused:
        into.commit(given)
    assert target in str(refused.value)
    assert into.texts == []


@pytest.mark.postgres
def test_a_domain_whose_name_has_braces_is_a_type_as_any(warehouse: Warehouse, tmp_path: Path) -> None:
    domain = f'{warehouse.schema}."a{{b}} %c"'
    warehouse.ask(f"CREATE DOMAIN {domain.replace('%', '%%')} AS numeric(10,2)")
    into = Column(warehouse, domain.replace("%", "%%"))
    into.commit(staged(tmp_path, {"v": ("double", pa.array([12.34, None]))}))
    assert into.texts == ["12.34", None]


@pytest.mark.postgres
def test_fault_311_control_without_the_look_it_is_rounded(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "fit", lambda kind, column: Fit())
    into = Column(warehouse, "numeric(10,2)")
    into.commit(staged(tmp_path, {"v": ("decimal(10,4)", pa.array([Decimal("1.2345")]))}))
    assert into.texts == ["1.23"]


def in_delta(folder: Path, given: Committable) -> list[Any]:
    """Commit to a Delta table that has a column of type int."""
    uri = str(folder / "table")
    deltalake.write_deltalake(uri, pa.table({"v": pa.array([1], pa.int32())}))
    DeltaTable(uri=uri).open(Resources()).commit(given)
    return sorted(deltalake.DeltaTable(uri).to_pyarrow_table()["v"].to_pylist())


def test_fault_311_a_delta_column_takes_no_type_whose_values_it_would_round(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"column v \(decimal\(10,2\)\) into int: a value could become another"):
        in_delta(tmp_path, staged(tmp_path, {"v": ("decimal(10,2)", pa.array([Decimal("2.50")]))}))


def test_fault_311_control_without_the_look_delta_rs_rounds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.sinks.delta.delta_takes", lambda kind, target: True)
    given = staged(tmp_path, {"v": ("decimal(10,2)", pa.array([Decimal("2.50")], pa.decimal128(10, 2)))})
    assert in_delta(tmp_path, given) in ([1, 2], [1, 3])


JULIAN = {b"org.apache.spark.legacyDateTime": b""}
OLD = {"v": ("date", pa.array([datetime.date(1500, 1, 10)]))}
"""What Spark's LEGACY calendar writes for 1500-01-01."""


def test_fault_312_an_old_date_of_the_legacy_calendar_is_refused(tmp_path: Path) -> None:
    into = DeltaTable(uri=str(tmp_path / "table")).open(Resources())
    with pytest.raises(SinkRefused, match=r"column v \(date\) has a value that is older than the calendar of today"):
        into.commit(staged(tmp_path, OLD, metadata=JULIAN))
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_fault_312_control_without_the_look_it_is_nine_days_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_types, "is_legacy", lambda footer: False)
    DeltaTable(uri=str(tmp_path / "table")).open(Resources()).commit(staged(tmp_path, OLD, metadata=JULIAN))
    found = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["v"].to_pylist()
    assert found == [datetime.date(1500, 1, 10)]


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        ("date", pa.array([2_932_897], pa.int32()).cast(pa.date32()), "is before year 1 or after year 9999"),
        ("timestamp", pa.array([-(2**60)]).cast(pa.timestamp("us", "UTC")), "is before year 1 or after year 9999"),
        ("string", pa.array([b"\xff"]).view(pa.string()), "is not UTF-8"),
    ],
)
def test_fault_312_a_value_that_not_every_client_can_read_is_refused(
    tmp_path: Path, kind: str, values: pa.Array, said: str
) -> None:
    into = DeltaTable(uri=str(tmp_path / "table")).open(Resources())
    with pytest.raises(SinkRefused, match=rf"column v \({kind}\) has a value that {said}"):
        into.commit(staged(tmp_path, {"v": (kind, values)}))


SWAPPED = (
    {"a": ("string", pa.array(["a"])), "b": ("string", pa.array(["b"]))},
    {"b": ("string", pa.array(["b"])), "a": ("string", pa.array(["a"]))},
)


def swapped(warehouse: Warehouse, folder: Path) -> str:
    """Commit them to a table of PostgreSQL, and return its name."""
    name = f"{warehouse.schema}.two"
    warehouse.ask(f"CREATE TABLE {name} (a text, b text)")
    given = staged(folder, *SWAPPED)
    PostgresTable(conn_id="warehouse", table=name).open(warehouse.resources).commit(given)
    return name


@pytest.mark.postgres
def test_fault_313_a_file_with_its_columns_in_another_order_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"a string, b string in part-0.parquet and b string, a string in part-1"):
        swapped(warehouse, tmp_path)
    assert warehouse.ask(f"SELECT * FROM {warehouse.schema}.two") == []


@pytest.mark.postgres
def test_fault_313_control_without_the_look_one_column_is_in_the_other(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_module, "_kinds", lambda file: {"a": "string", "b": "string"})
    assert warehouse.ask(f"SELECT a, b FROM {swapped(warehouse, tmp_path)}") == [("a", "b"), ("b", "a")]


def test_columns_whose_names_differ_by_case_alone_are_refused_by_a_lake(tmp_path: Path) -> None:
    into = DeltaTable(uri=str(tmp_path / "table")).open(Resources())
    with pytest.raises(SinkRefused, match="columns v and V, whose names differ by case alone"):
        into.commit(staged(tmp_path, {"v": ("long", pa.array([1])), "V": ("long", pa.array([2]))}))


def upper_case_in_iceberg(folder: Path) -> str:
    """What is said of a result with the column ``v``, whose table has the column ``V``."""
    lake = Lake(folder)
    catalog = load_catalog("lake", **lake.catalog_properties("lake"))
    catalog.create_namespace("db")
    catalog.create_table("db.t", pa.schema([("V", pa.int64())]))
    into = IcebergTable(uri="iceberg://lake/db.t").open(lake)
    with pytest.raises(SinkRefused) as refused:
        into.commit(staged(folder, {"v": ("long", pa.array([1]))}))
    return str(refused.value)


def test_fault_361_a_column_whose_name_differs_by_case_is_named_beside_that_of_the_table(tmp_path: Path) -> None:
    assert "column v (bigint): the table has no such column, but V" in upper_case_in_iceberg(tmp_path)


@pytest.mark.control
def test_fault_361_control_pyiceberg_alone_does_not_name_the_column_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_module, "check_lake_columns", lambda *given: None)
    assert ", but V" not in upper_case_in_iceberg(tmp_path)


# --- partitions of Delta tables ---------------------------------------------------------------------------------------


def partitioned(folder: Path, kind: str, arrow: pa.DataType) -> str:
    """A Delta table with one row, which is partitioned by its column ``v``."""
    uri = str(folder / "table")
    columns = [deltalake.Field(name, deltalake.schema.PrimitiveType(of)) for name, of in (("i", "long"), ("v", kind))]
    deltalake.DeltaTable.create(uri, deltalake.Schema(columns), partition_by=["v"])
    deltalake.write_deltalake(uri, pa.table({"i": pa.array([0]), "v": pa.array([None], arrow)}), mode="append")
    return uri


def committed_to_partitions(folder: Path, kind: str, array: pa.Array) -> list[Any]:
    """Append the values, and return what the table has."""
    uri = partitioned(folder, kind, array.type)
    given = staged(folder, {"i": ("long", pa.array(range(len(array)), pa.int64())), "v": (kind, array)})
    DeltaTable(uri=uri, mode="append").open(Resources()).commit(given)
    found = deltalake.DeltaTable(uri).to_pyarrow_table()["v"].to_pylist()
    return sorted(value for value in found if value is not None)


UNKEPT = {
    "string": (pa.array(["a", ""]), r"column v \(string\) of .* has a value that is an empty text, which is null in"),
    "binary": (pa.array([b"a"]), r"column v \(binary\) of .* has a value that delta-rs would replace by other bytes"),
    "decimal(10,2)": (
        pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(10, 2)),
        r"column v \(decimal\(10,2\)\) of .* has a value that is a negative number with a fraction",
    ),
}
KEPT = {
    "string": pa.array(["a", " ", "null", "ü/=%", "__HIVE_DEFAULT_PARTITION__"]),
    "decimal(10,2)": pa.array([Decimal("1.50"), Decimal("-2.00"), Decimal("0.05")], pa.decimal128(10, 2)),
    "decimal(38,38)": pa.array([Decimal("0.5")], pa.decimal128(38, 38)),
    "date": pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "timestamp_ntz": pa.array([datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)], pa.timestamp("us")),
    "boolean": pa.array([True, False]),
    "long": pa.array([-1, 2**63 - 1]),
}


@pytest.mark.parametrize("kind", UNKEPT)
def test_fault_311_a_value_that_a_partition_of_a_delta_table_does_not_keep_is_refused(
    tmp_path: Path, kind: str
) -> None:
    array, said = UNKEPT[kind]
    with pytest.raises(SinkRefused, match=said):
        committed_to_partitions(tmp_path, kind, array)
    assert deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["v"].to_pylist() == [None]


@pytest.mark.parametrize("kind", KEPT)
def test_fault_311_each_other_value_is_the_same_in_a_partition(tmp_path: Path, kind: str) -> None:
    assert committed_to_partitions(tmp_path, kind, KEPT[kind]) == sorted(KEPT[kind].to_pylist())


@pytest.mark.control
def test_fault_311_control_without_the_look_at_partitions_values_change_and_the_table_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_module, "_why_no_partition", lambda array, kind: None)
    (tmp_path / "text").mkdir()
    assert committed_to_partitions(tmp_path / "text", "string", pa.array([""])) == []
    (tmp_path / "number").mkdir()
    with pytest.raises(SinkUnavailable, match=r"Failed to parse value '0\.-1' as 'decimal\(10,2\)'"):
        committed_to_partitions(tmp_path / "number", "decimal(10,2)", UNKEPT["decimal(10,2)"][0])
    with pytest.raises(deltalake.exceptions.DeltaError, match="Failed to parse value"):
        deltalake.DeltaTable(str(tmp_path / "number" / "table")).to_pyarrow_table()


# --- strings that a column reads as another value ---------------------------------------------------------------------

READ_ANOTHER_WAY = {
    "numeric(10,2)[]": ("{1.234}", "{1.23}", "{1.5,-2,NULL}", "{1.50,-2.00,NULL}"),
    "integer[]": ("{007}", "{7}", "{10, 0}", "{10,0}"),
    "real[]": ("{0.123456789}", "{0.12345679}", "{0.5}", "{0.5}"),
    "character varying(3)[]": ('{"abc  "}', "{abc}", "{abc}", "{abc}"),
    "timestamp(0) without time zone[]": (
        '{"2026-01-02 03:04:05.6"}', '{"2026-01-02 03:04:06"}', '{"2026-01-02 03:04:05"}', '{"2026-01-02 03:04:05"}',
    ),
    "tsrange": (
        '["2026-01-02 00:00:00.1234567","2026-01-03 00:00:00")', '["2026-01-02 00:00:00.123457","2026-01-03 00:00:00")',
        '["2026-01-02 00:00:00","2026-01-03 00:00:00")', '["2026-01-02 00:00:00","2026-01-03 00:00:00")',
    ),
    '"char"': ("ab", "a", "a", "a"),
    "oid": ("-1", "4294967295", "7", "7"),
    "{schema}.price": ("1.234", "1.23", "1.5", "1.50"),
    "{schema}.price[]": ("{1.234}", "{1.23}", "{1.5}", "{1.50}"),
    "{schema}.pair": ("(1.234,a)", "(1.23,a)", "(1.50,a)", "(1.50,a)"),
}  # fmt: skip
"""By the column's type: a string, what the server would make of it, a string that it takes, and what it holds then."""


def text_column(warehouse: Warehouse, kind: str) -> Column:
    """A table whose column may have a domain over a domain as its type, or a row with rounded members."""
    warehouse.ask(
        f"CREATE DOMAIN {warehouse.schema}.money AS numeric(10,2); "
        f"CREATE DOMAIN {warehouse.schema}.price AS {warehouse.schema}.money; "
        f"CREATE TYPE {warehouse.schema}.pair AS (a numeric(10,2), b text)"
    )
    return Column(warehouse, kind.format(schema=warehouse.schema))


@pytest.mark.postgres
@pytest.mark.parametrize("kind", READ_ANOTHER_WAY)
def test_fault_398_a_string_that_a_column_reads_another_way_is_refused(
    warehouse: Warehouse, tmp_path: Path, kind: str
) -> None:
    other, _, same, held = READ_ANOTHER_WAY[kind]
    into = text_column(warehouse, kind)
    with pytest.raises(SinkRefused, match=r"column v \(string\) into .*: a value would be another one there"):
        into.commit(staged(tmp_path / "other", {"v": ("string", pa.array([same, other]))}))
    assert into.texts == []
    into.commit(staged(tmp_path / "same", {"v": ("string", pa.array([same, None]))}))
    assert into.texts == [held, None]


@pytest.mark.postgres
@pytest.mark.control
@pytest.mark.parametrize("kind", READ_ANOTHER_WAY)
def test_fault_398_control_read_as_it_is_the_column_holds_another_value(
    warehouse: Warehouse, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, found, *_ = READ_ANOTHER_WAY[kind]
    monkeypatch.setattr(postgres_columns, "_reads_as_it_is", lambda column: True)
    into = text_column(warehouse, kind)
    into.commit(staged(tmp_path, {"v": ("string", pa.array([other]))}))
    assert into.texts == [found]


# --- char(n) and varchar(n) of Spark in Delta tables ------------------------------------------------------------------


def commit_to_three_characters(folder: Path, kind: str, *texts: str | None) -> list[Any]:
    """Commit to a Delta table whose column Spark has made with this type, and return what the table has."""
    uri = str(folder / "table")
    column = deltalake.Field(
        "v", deltalake.schema.PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": kind}
    )
    deltalake.DeltaTable.create(uri, deltalake.Schema([column]), mode="ignore")
    given = staged(folder, {"v": ("string", pa.array(texts, pa.string()))})
    DeltaTable(uri=uri, mode="append").open(Resources()).commit(given)
    return list(deltalake.DeltaTable(uri).to_pyarrow_table()["v"].to_pylist())


@pytest.mark.parametrize("kind", ["char(3)", "varchar(3)"])
def test_fault_401_a_text_that_is_longer_than_sparks_column_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(
        SinkRefused, match=rf"column v \(string\) of .* has a value that has 4 characters, and .* {re.escape(kind)}"
    ):
        commit_to_three_characters(tmp_path, kind, "abc", "žlut")
    assert commit_to_three_characters(tmp_path, kind, "žlu", None) == ["žlu", None]


@pytest.mark.control
def test_fault_401_control_delta_rs_writes_a_text_of_any_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_module, "_lengths", lambda table: {})
    assert commit_to_three_characters(tmp_path, "varchar(3)", "abcd") == ["abcd"]


# --- partitions of Iceberg tables -------------------------------------------------------------------------------------


def partition_of_a_double(folder: Path) -> float:
    """Commit 0.1 to a table that is partitioned by it, and return the partition's value, which other engines read."""
    lake = Lake(folder)
    catalog = load_catalog("lake", **lake.catalog_properties("lake"))
    catalog.create_namespace("db")
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "v"))
    catalog.create_table("db.t", Schema(NestedField(1, "v", DoubleType(), required=False)), partition_spec=spec)
    into = IcebergTable(uri="iceberg://lake/db.t").open(lake)
    given = staged(folder, {"v": ("double", pa.array([0.1]))})
    try:
        into.commit(given)
    except SinkRefused:
        with pytest.raises(SinkRefused, match="found one by column v"):
            into.others(given.token)
        raise
    (task,) = catalog.load_table("db.t").scan().plan_files()
    return float(task.file.partition[0])


def test_fault_311_an_iceberg_table_with_a_partition_by_a_double_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"found one by column v \(double\): pyiceberg writes .* with 32 bits"):
        partition_of_a_double(tmp_path)


@pytest.mark.control
def test_fault_311_control_unchecked_the_partition_has_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_module._IcebergCommitter, "_check_partitions", lambda *given: None)
    assert partition_of_a_double(tmp_path) == 0.10000000149011612
