"""No two types have one digest: each type beside each other one, in each format whose rows are compared.

Each value is the same number, text or null underneath, so the types alone tell the results apart.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from pyiceberg import types as iceberg
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from value_cells import TYPES

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.spark_types import FOOTER
from airflow_recovery.results import row_digest, stored_files
from airflow_recovery.results.stored_rows import ReadLimits, StoredRows
from airflow_recovery.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHAR = "__CHAR_VARCHAR_TYPE_STRING"
SPANS = {"year to month": pa.int32(), "year": pa.int32(), "month": pa.int32()} | {
    f"{first} to {last}" if first != last else first: pa.int64()
    for first, last in itertools.combinations_with_replacement(("day", "hour", "minute", "second"), 2)
}


@dataclass(frozen=True)
class Kind:
    """A type of Spark: its JSON, the metadata of its column, and how it lies in Parquet, with a value."""

    json: Any
    arrow: pa.DataType
    value: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    is_int96: bool = False
    footer: dict[bytes, bytes] = field(default_factory=dict)


LEAVES: dict[str, Kind] = {
    "boolean": Kind("boolean", pa.bool_(), True),
    "tinyint": Kind("byte", pa.int8(), 1),
    "smallint": Kind("short", pa.int16(), 1),
    "int": Kind("integer", pa.int32(), 1),
    "bigint": Kind("long", pa.int64(), 1),
    "float": Kind("float", pa.float32(), 1.0),
    "double": Kind("double", pa.float64(), 1.0),
    **{
        f"decimal({digits},{scale})": Kind(f"decimal({digits},{scale})", pa.decimal128(digits, scale), Decimal(1))
        for digits, scale in ((1, 0), (10, 0), (10, 2), (38, 0), (38, 18))
    },
    "string": Kind("string", pa.string(), "1"),
    **{name: Kind("string", pa.string(), "1", {CHAR: name}) for name in ("char(1)", "varchar(1)", "varchar(2)")},
    **{name: Kind("string", pa.string(), "1", {"__COLLATIONS": {"c": name}}) for name in ("UTF8_LCASE", "UNICODE_CI")},
    "binary": Kind("binary", pa.binary(), b"1"),
    "date": Kind("date", pa.date32(), datetime.date(1970, 1, 2)),
    "timestamp, INT96": Kind("timestamp", pa.timestamp("us"), datetime.datetime(1970, 1, 2), is_int96=True),
    "timestamp, MICROS": Kind("timestamp", pa.timestamp("us", "UTC"), datetime.datetime(1970, 1, 2)),
    "timestamp, MILLIS": Kind("timestamp", pa.timestamp("ms", "UTC"), datetime.datetime(1970, 1, 2)),
    "timestamp_ntz": Kind("timestamp_ntz", pa.timestamp("us"), datetime.datetime(1970, 1, 2)),
    "time(6)": Kind("time(6)", pa.time64("us"), datetime.time(0, 0, 1)),
    "time(0)": Kind("time(0)", pa.time64("us"), datetime.time(0, 0, 1)),
    **{f"interval {unit}": Kind(f"interval {unit}", kind, 1) for unit, kind in SPANS.items()},
    "variant": Kind(
        "variant", pa.struct([("value", pa.binary()), ("metadata", pa.binary())]), {"value": b"1", "metadata": b"1"}
    ),
    "geometry(4326)": Kind("geometry(4326)", pa.binary(), b"1"),
    "user type": Kind({"type": "udt", "class": "PointUDT", "sqlType": "double"}, pa.float64(), 1.0),
    "date, LEGACY": Kind(
        "date", pa.date32(), datetime.date(1970, 1, 2), footer={b"org.apache.spark.legacyDateTime": b""}
    ),
    "timestamp, INT96, LEGACY": Kind(
        "timestamp", pa.timestamp("us"), datetime.datetime(1970, 1, 2), is_int96=True,
        footer={b"org.apache.spark.legacyINT96": b"", b"org.apache.spark.timeZone": b"Asia/Tokyo"},
    ),
}  # fmt: skip


def _field(kind: Kind, name: str = "c") -> dict[str, Any]:
    return {"name": name, "type": kind.json, "nullable": True, "metadata": kind.metadata}


def _nested(kind: Kind) -> Iterator[tuple[str, Kind]]:
    """The type within others. Its column has the metadata, but in a struct."""
    array = {"type": "array", "elementType": kind.json, "containsNull": True}
    of_map = {"type": "map", "keyType": "string", "valueType": kind.json, "valueContainsNull": True}
    struct = {"type": "struct", "fields": [_field(kind, "a")]}
    given: dict[str, Any] = {"is_int96": kind.is_int96, "footer": kind.footer}
    yield "array of {}", Kind(array, pa.list_(kind.arrow), [kind.value], kind.metadata, **given)
    yield "map of {}", Kind(of_map, pa.map_(pa.string(), kind.arrow), [("1", kind.value)], kind.metadata, **given)
    yield "struct of {}", Kind(struct, pa.struct([("a", kind.arrow)]), {"a": kind.value}, **given)


KINDS = LEAVES | {
    name.format(leaf): nested for leaf, kind in LEAVES.items() for name, nested in _nested(kind)
}  # fmt: skip
KINDS["struct<value: binary, metadata: binary>"] = Kind(
    {
        "type": "struct",
        "fields": [_field(Kind("binary", pa.binary(), b""), name) for name in ("value", "metadata")],
    },
    LEAVES["variant"].arrow,
    LEAVES["variant"].value,
)


def parquet(kind: Kind, value: Any) -> bytes:
    """A file as Spark writes it."""
    schema = json.dumps({"type": "struct", "fields": [_field(kind)]}).encode()
    table, body = pa.table({"c": pa.array([value], kind.arrow)}), io.BytesIO()
    options = {"store_schema": False, "use_deprecated_int96_timestamps": kind.is_int96}
    with pyarrow.parquet.ParquetWriter(body, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({FOOTER: schema, **kind.footer})
    return body.getvalue()


def digest(folder: Path, name: str = "", body: bytes = b"") -> str:
    """The digest of a folder's files, or of one file that is put there first."""
    store = LocalStore(str(folder))
    if name:
        store.put(name, body)
    objects = tuple(ResultObject(info.key, info.size, info.etag) for info in store.list())
    manifest = PartitionManifest("t.out", store.base_uri, objects)
    return StoredRows(manifest, store, ReadLimits(1 << 30, 60.0), dict).digest().text


def alike(digests: dict[str, str]) -> list[list[str]]:
    """The names that have one digest with others."""
    found: dict[str, list[str]] = {}
    for name, text in digests.items():
        found.setdefault(text, []).append(name)
    return [names for names in found.values() if len(names) > 1]


def in_parquet(folder: Path, kinds: dict[str, Kind]) -> list[list[str]]:
    """The types that have one digest, with a value or with a null."""
    files = {name: [parquet(kind, kind.value), parquet(kind, None)] for name, kind in kinds.items()}
    return alike(
        {
            f"{name}, {at}": digest(folder / str(number) / str(at), "p.parquet", body)
            for number, (name, bodies) in enumerate(files.items())
            for at, body in zip(("value", "null"), bodies, strict=True)
        }
    )


@pytest.mark.slow
def test_fault_360_no_two_types_of_spark_have_one_digest_in_parquet(tmp_path: Path) -> None:
    assert len(KINDS) > 150
    assert in_parquet(tmp_path, KINDS) == []


@pytest.mark.control
def test_fault_360_control_by_the_types_of_arrow_a_moment_is_a_time_without_a_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_files, "_with_types", lambda file: file.schema_arrow)
    kinds = {name: LEAVES[name] for name in ("timestamp, INT96", "timestamp, MICROS", "timestamp_ntz", "date")}
    assert in_parquet(tmp_path, kinds) == [
        [f"timestamp, INT96, {of}", f"timestamp_ntz, {of}"] for of in ("value", "null")
    ]


def test_fault_360_what_no_footer_of_spark_describes_is_told_apart(tmp_path: Path) -> None:
    """Other writers: UUID and JSON are bytes and text underneath."""
    tables = {
        "bytes": pa.table({"c": pa.array([None], pa.binary(16))}),
        "uuid": pa.table({"c": pa.array([None], pa.uuid())}),
        "text": pa.table({"c": pa.array([None], pa.string())}),
        "json": pa.table({"c": pa.array([None], pa.json_())}),
        "moment, INT96": pa.table({"c": pa.array([None], pa.timestamp("us"))}),
        "clock": pa.table({"c": pa.array([None], pa.timestamp("us"))}),
    }
    digests = {}
    for name, table in tables.items():
        body = io.BytesIO()
        is_int96 = name.endswith("INT96")
        pyarrow.parquet.write_table(table, body, store_schema=False, use_deprecated_int96_timestamps=is_int96)
        digests[name] = digest(tmp_path / name, "p.parquet", body.getvalue())
    assert alike(digests) == []


def test_fault_360_a_footer_belongs_to_the_rows_of_its_file(tmp_path: Path) -> None:
    """A moment in one file and a time without a zone in another: their rows can't change places."""
    moment, clock = LEAVES["timestamp, INT96"], LEAVES["timestamp_ntz"]
    days = [datetime.datetime(1970, 1, at) for at in (2, 3)]
    digests = {}
    for name, (first, second) in {"so": days, "the other way": days[::-1]}.items():
        store = LocalStore(str(tmp_path / name))
        store.put("a.parquet", parquet(moment, first))
        store.put("b.parquet", parquet(clock, second))
        digests[name] = digest(tmp_path / name)
    assert alike(digests) == []


def orc(kind: pa.DataType, of_spark: str = "", nested: str = "{}") -> bytes:
    """A file as Spark writes it: the name of a type that ORC does not have is an attribute of the column."""
    given = {b"spark.sql.catalyst.type": of_spark.encode()} if of_spark else None
    column = pa.field("c", kind, metadata=given)
    if nested != "{}":
        column = pa.field("c", pa.struct([column]))
    table = pa.Table.from_arrays([pa.array([None], column.type)], schema=pa.schema([column]))
    body = io.BytesIO()
    pyarrow.orc.write_table(table, body)
    return body.getvalue()


ORC = {
    "bigint": (pa.int64(), ""),
    "int": (pa.int32(), ""),
    "interval day": (pa.int64(), "interval day"),
    "interval day to second": (pa.int64(), "interval day to second"),
    "interval year": (pa.int32(), "interval year"),
    "interval month": (pa.int32(), "interval month"),
    "timestamp": (pa.timestamp("ns"), "timestamp"),
    "timestamp_ntz": (pa.timestamp("ns"), "timestamp_ntz"),
}


def in_orc(folder: Path) -> list[list[str]]:
    return alike(
        {
            nested.format(name): digest(folder / f"{at}{len(nested)}", "p.orc", orc(*kind, nested))
            for at, (name, kind) in enumerate(ORC.items())
            for nested in ("{}", "struct of {}")
        }
    )


def test_fault_360_no_two_types_of_spark_have_one_digest_in_orc(tmp_path: Path) -> None:
    assert in_orc(tmp_path) == []


@pytest.mark.control
def test_fault_360_control_without_its_attributes_an_interval_in_orc_is_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_digest, "_field_kind", lambda field: row_digest._kind(field.type))
    assert in_orc(tmp_path)[:1] == [["bigint", "interval day", "interval day to second"]]


def delta(folder: Path, **metadata: Any) -> str:
    kind = deltalake.schema.PrimitiveType("string")
    column = deltalake.Field("c", kind, nullable=True, metadata=metadata)
    deltalake.DeltaTable.create(str(folder), deltalake.Schema([column]))
    return digest(folder)


def test_fault_360_what_the_log_of_a_delta_table_says_of_a_column_counts(tmp_path: Path) -> None:
    metadata: dict[str, dict[str, Any]] = {
        "string": {},
        "char(3)": {CHAR: "char(3)"},
        "varchar(3)": {CHAR: "varchar(3)"},
        "a collation": {"__COLLATIONS": {"c": "icu.UNICODE_CI"}},
    }
    digests = {name: delta(tmp_path / name, **given) for name, given in metadata.items()}
    assert alike(digests) == []
    # Which random name a column has in the files is of no account, nor is a comment.
    assert delta(tmp_path / "random", **{"delta.random": "7", "comment": "net"}) == (digests["string"])


def test_fault_360_no_two_types_of_iceberg_have_one_digest(tmp_path: Path) -> None:
    kinds = (
        iceberg.BooleanType(), iceberg.IntegerType(), iceberg.LongType(), iceberg.FloatType(), iceberg.DoubleType(),
        iceberg.DecimalType(10, 2), iceberg.DecimalType(10, 3), iceberg.DateType(), iceberg.TimeType(),
        iceberg.TimestampType(), iceberg.TimestamptzType(), iceberg.StringType(), iceberg.UUIDType(),
        iceberg.FixedType(16), iceberg.FixedType(8), iceberg.BinaryType(),
    )  # fmt: skip
    catalog = SqlCatalog("c", uri="sqlite:///:memory:")
    catalog.create_namespace("d")
    digests = {}
    for at, kind in enumerate(kinds):
        schema = Schema(iceberg.NestedField(1, "c", kind, required=False))
        catalog.create_table(f"d.t{at}", schema, f"file://{tmp_path}/{at}")
        digests[str(kind)] = digest(tmp_path / str(at))
    assert alike(digests) == []


@pytest.mark.spark
@pytest.mark.drill
@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_fault_360_nulls_of_two_types_have_two_digests_as_spark_writes_them(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    from pyspark.errors import AnalysisException

    schemas: dict[str, set[str]] = {}
    refused = []
    for at, kind in enumerate(TYPES):
        folder = tmp_path / str(at)
        for setting, value in kind.conf.items():
            spark.conf.set(setting, value)
        try:
            first = next(iter(kind.values), "NULL")
            frame = spark.sql(f"SELECT CASE WHEN rand(1) < 2 THEN NULL ELSE {first} END AS c")
            frame.coalesce(1).write.format(name).save(str(folder))
        except AnalysisException:
            refused.append(kind.name)
            continue
        finally:
            for setting in kind.conf:
                spark.conf.unset(setting)
        schemas.setdefault(digest(folder), set()).add(frame.schema.json())
    print(f"{name}: {len(TYPES)} types, {len(schemas)} digests, refused by Spark: {refused}")
    assert [found for found in schemas.values() if len(found) > 1] == []
