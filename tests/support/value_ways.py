"""The ways that a row of the matrix of values can go, each into one column ``v`` of a target: commit, and read back.

What a target holds is read by its own client, and by nothing of the product.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import deltalake
import psycopg2
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from value_cells import Staged, Value, all_the_same, values_of

from airflow_recovery.driver.delta_result import write_delta
from airflow_recovery.driver.iceberg_result import write_iceberg
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import ConfigurationError, SinkRefused, UserCodeError
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.results.tables import Tables, token_of
from airflow_recovery.sinks import Committable, CommitToken, DatabaseAddress, DeltaTable, IcebergTable, PostgresTable
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEW = "new table"
"""The target's type, if the commit makes the table."""
EQUAL, REFUSED, IN_PART, WRONG, UNNAMED = "equal", "refused", "by value", "WRONG", "refused without names"

POSTGRES = (
    "boolean", "smallint", "integer", "bigint", "numeric", "numeric(10,2)", "numeric(38,18)", "real",
    "double precision", "text", "character varying", "character varying(10)", "character(3)", "name", "bytea", "date",
    "time without time zone", "timestamp without time zone", "timestamp(3) without time zone",
    "timestamp with time zone", "timestamp(3) with time zone", "interval", "interval second(0)", "json", "jsonb",
    "uuid", "money", "integer[]", "numeric(10,2)[]", "text[]", "bit(3)", '"char"', "oid", "tsrange",
)  # fmt: skip
"""Types of a column of PostgreSQL, as the server spells them."""
LAKE = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(5,2)", "decimal(10,2)", "decimal(38,0)",
    "decimal(38,18)", "string", "binary", "date", "timestamp", "timestamp_ntz", "time", "array<integer>",
    "array<long>", "array<timestamp>", "map<string,integer>", "struct<a:integer,b:string>",
    "struct<metadata:binary,value:binary>",
)  # fmt: skip
"""Types of a column of a table of Delta or Iceberg, by Spark's names. Not each format has each."""

SPARKS_REFUSAL = re.compile(
    r"UNSUPPORTED_DATA_TYPE|UNSUPPORTED_TIME_TYPE|UNSUPPORTED_FEATURE|DELTA_FAILED_TO_MERGE|DELTA_METADATA_MISMATCH"
)
"""Conditions by which Spark refuses a type before anything is written."""
KEY = RegionKey("d", "r", "g", "made")

_numbers = itertools.count()


class Target(Protocol):
    """A table with one column ``v``."""

    def commit(self, manifest: PartitionManifest) -> str: ...
    def values(self) -> list[Value] | None:
        """What the target holds; `None`: only Spark reads it, and has found what it wrote."""

    def drop(self) -> None: ...


@dataclass(frozen=True)
class Cell:
    """What became of one Spark type on one way. ``text``: the message, or what was found in place of the values."""

    type: str
    way: str
    target: str
    outcome: str
    text: str = ""


def token() -> CommitToken:
    return CommitToken("dag", "date-1", "flights", "delays", 1)


def run_cell(staged: Staged, way: str, target: str, make: Any) -> Cell:
    """Commit all values; if one of them is refused for its value, each alone."""

    def outcome(manifest: PartitionManifest, expected: Sequence[Value]) -> tuple[str, str]:
        into = make()
        try:
            return _outcome(into, manifest, expected, staged.type.name.partition(" ")[0].partition("(")[0])
        finally:
            into.drop()

    whole, text = outcome(staged.manifest(), staged.values)
    if whole == REFUSED and re.search("has a value that|a value (would be|is none)|that not every client can", text):
        alone = [outcome(staged.manifest(at), [value]) for at, value in enumerate(staged.values) if value is not None]
        bad = [each for each in alone if each[0] not in (EQUAL, REFUSED)]
        if bad:
            whole, text = bad[0]
        elif any(each[0] == EQUAL for each in alone):
            whole = IN_PART
    return Cell(staged.type.name, way, target, whole, text)


def _outcome(into: Target, manifest: PartitionManifest, expected: Sequence[Value], kind: str) -> tuple[str, str]:
    try:
        into.commit(manifest)
    except (SinkRefused, ConfigurationError, UserCodeError) as error:
        left = _left(into)
        if left:
            return WRONG, f"refused, and the table has {left}"
        is_named = re.search(r"column '?v\b|`v`", str(error)) is not None
        return (REFUSED if is_named else UNNAMED), str(error)
    except Exception as error:
        if SPARKS_REFUSAL.search(str(error)) and not _left(into):
            return REFUSED, str(error)
        return UNNAMED, f"{type(error).__name__}: {str(error)[:300]}"
    found = into.values()
    is_equal = found is None or all_the_same(expected, found)
    return (EQUAL, "") if is_equal else (WRONG, f"{expected} became {found}"[:400])


def _left(into: Target) -> list[Value]:
    with suppress(deltalake.exceptions.TableNotFoundError):
        return into.values() or []
    return []


class _Local:
    """The `SinkResources` of a folder and a database."""

    def __init__(self, address: Any = None, properties: dict[str, str] | None = None) -> None:
        self._address, self._properties = address, properties or {}

    def database(self, conn_id: str) -> DatabaseAddress:
        given = self._address
        return DatabaseAddress(given["host"], int(given["port"]), given["dbname"], given["user"], given["password"])

    def open_location(self, location: str) -> ObjectStore:
        return open_store(location)

    def catalog_properties(self, name: str) -> dict[str, str]:
        return self._properties

    def storage_options(self, location: str) -> dict[str, str]:
        return {}


class Postgres:
    """A table in PostgreSQL with a column of type ``kind``."""

    def __init__(self, address: dict[str, str | int], kind: str) -> None:
        self._resources, self._kind = _Local(address), kind
        self._connection = psycopg2.connect(**address)
        self._connection.autocommit = True
        self.table = f"values_{next(_numbers)}"
        self._ask(f"SET TimeZone TO 'Asia/Tokyo'; CREATE TABLE {self.table} (v {kind})")

    def _ask(self, query: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall() if cursor.description else []

    def commit(self, manifest: PartitionManifest) -> str:
        sink = PostgresTable(conn_id="warehouse", table=self.table)
        return sink.open(self._resources).commit(Committable(token(), manifest))

    def values(self) -> list[Value]:
        tag, expression = self._reading()
        return [
            None if row[0] is None else (tag, row[0]) for row in self._ask(f"SELECT {expression} FROM {self.table}")
        ]

    def _reading(self) -> tuple[str, str]:
        kind = self._kind.partition("(")[0]
        if self._kind == "numeric(10,2)[]":
            return "text", "(SELECT array_agg(trim_scale(item))::text FROM unnest(v) AS item)"
        if self._kind.endswith("[]"):
            return "text", "v::text"
        if kind.startswith("interval"):
            return self._interval()
        moment = "(extract(epoch FROM v) * 1000000)::numeric::bigint"
        readings = {
            "boolean": ("bool", "v"),
            "real": ("float", "v::float8"),
            "double precision": ("float", "v"),
            "bytea": ("bytes", "v"),
            "date": ("date", "v - DATE '1970-01-01'"),
            "time without time zone": ("time", moment),
            "character": ("filled", "v::bpchar"),
        }
        if self._kind.startswith("timestamp"):
            return ("moment" if self._kind.endswith("with time zone") else "clock"), moment
        if kind in ("smallint", "integer", "bigint", "numeric"):
            return "number", "v::numeric"
        if kind in ("text", "character varying", "name"):
            return "text", "v"
        if kind in ("json", "jsonb", "uuid"):
            return "parsed", "v::text"
        return readings.get(kind, ("text", "v::text"))

    def _interval(self) -> tuple[str, str]:
        is_months = self._ask(
            f"SELECT bool_or(extract(month FROM v) <> 0 OR extract(year FROM v) <> 0) FROM {self.table}"
        )
        if is_months[0][0]:
            return "months", "(extract(year FROM v) * 12 + extract(month FROM v))::bigint"
        micros = (
            "(extract(day FROM v) * 86400000000 + extract(hour FROM v) * 3600000000 + extract(minute FROM v) * "
            "60000000 + extract(second FROM v) * 1000000)::bigint"
        )
        return "micros", micros

    def drop(self) -> None:
        self.drop_table()
        self._ask("DROP TABLE IF EXISTS airflow_recovery_commits")
        self._connection.close()

    def drop_table(self) -> None:
        """Let the commit make it."""
        self._ask(f"DROP TABLE IF EXISTS {self.table}")


class Delta:
    """A Delta table with a column of type ``kind``, or none yet."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.uri = str(folder / f"delta_{next(_numbers)}")
        if kind != NEW:
            schema = deltalake.Schema([deltalake.Field("v", delta_type(kind), nullable=True)])
            deltalake.DeltaTable.create(self.uri, schema)

    def commit(self, manifest: PartitionManifest) -> str:
        return DeltaTable(uri=self.uri).open(_Local()).commit(Committable(token(), manifest))

    def values(self) -> list[Value]:
        table = deltalake.DeltaTable(self.uri)
        return values_of(table.to_pyarrow_table()["v"])

    def drop(self) -> None: ...


def delta_type(kind: str) -> Any:
    """Raises `ValueError` if Delta has no such type."""
    if kind == "time":
        raise ValueError("Delta has no time")
    if kind.startswith("array<"):
        return deltalake.schema.ArrayType(delta_type(kind[6:-1]), contains_null=True)
    if kind.startswith("map<"):
        key, _, value = kind[4:-1].partition(",")
        return deltalake.schema.MapType(delta_type(key), delta_type(value), value_contains_null=True)
    if kind.startswith("struct<"):
        fields = [each.split(":") for each in kind[7:-1].split(",")]
        return deltalake.schema.StructType(
            [deltalake.Field(name, delta_type(each), nullable=True) for name, each in fields]
        )
    return deltalake.schema.PrimitiveType(kind)


class Iceberg:
    """An Iceberg table with a column of type ``kind``."""

    def __init__(self, properties: dict[str, str], kind: str) -> None:
        self._resources = _Local(properties=properties)
        self._catalog = load_catalog("lake", **properties)
        self._name = f"db.t{next(_numbers)}"
        self._catalog.create_namespace_if_not_exists("db")
        self._catalog.create_table(self._name, Schema(NestedField(1, "v", iceberg_type(kind), required=False)))

    def commit(self, manifest: PartitionManifest) -> str:
        sink = IcebergTable(uri=f"iceberg://lake/{self._name}")
        return sink.open(self._resources).commit(Committable(token(), manifest))

    def values(self) -> list[Value]:
        return values_of(self._catalog.load_table(self._name).scan().to_arrow()["v"])

    def drop(self) -> None:
        self._catalog.drop_table(self._name)


def iceberg_type(kind: str) -> Any:
    """Raises `ValueError` if Iceberg has no such type."""
    from pyiceberg import types as T

    ids = itertools.count(100)
    plain = {
        "boolean": T.BooleanType(), "integer": T.IntegerType(), "long": T.LongType(), "float": T.FloatType(),
        "double": T.DoubleType(), "string": T.StringType(), "binary": T.BinaryType(), "date": T.DateType(),
        "timestamp": T.TimestamptzType(), "timestamp_ntz": T.TimestampType(), "time": T.TimeType(),
    }  # fmt: skip

    def made(text: str) -> Any:
        if text.startswith("array<"):
            return T.ListType(next(ids), made(text[6:-1]), element_required=False)
        if text.startswith("map<"):
            key, _, value = text[4:-1].partition(",")
            return T.MapType(next(ids), made(key), next(ids), made(value), value_required=False)
        if text.startswith("struct<"):
            fields = [each.split(":") for each in text[7:-1].split(",")]
            return T.StructType(*(NestedField(next(ids), name, made(each), required=False) for name, each in fields))
        if text.startswith("decimal"):
            return T.DecimalType(*map(int, re.findall(r"\d+", text)))
        if text not in plain:
            raise ValueError(f"Iceberg has no {text}")
        return plain[text]

    return made(kind)


def rows_of(spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
    """The rows that Spark has staged, as a vertex returns them."""
    return spark.read.parquet(*(uri.removeprefix("file://") for uri in manifest.uris())).select("v")


def shown(frame: DataFrame) -> list[str]:
    """Each value of ``v`` as Spark shows it, with its type. Texts are shown by their bytes."""
    kind = frame.schema["v"].dataType.simpleString()
    if kind.startswith(("string", "char", "varchar", "binary")):
        text = "hex(CAST(v AS BINARY))"
    elif kind.startswith("geometry"):
        text = "hex(st_asbinary(v))"
    else:
        text = "to_json(v)" if "variant" in kind else "CAST(v AS STRING)"
    return sorted(str((row[0], row[1])) for row in frame.selectExpr("typeof(v)", text).collect())


class Vertex:
    """The result of a vertex in files, or as a snapshot of a table (``table=``), written and read again by Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._wrong = ""

    def commit(self, manifest: PartitionManifest) -> str:
        frame = rows_of(self._spark, manifest)
        made = self.write(frame)
        return self.compared(shown(frame), shown(read_manifest(self._spark, made).select("v")), made.location)

    def compared(self, before: list[str], after: list[str], location: str) -> str:
        self._wrong = "" if before == after else f"Spark wrote {before}, and reads {after}"
        return location

    def write(self, frame: DataFrame) -> PartitionManifest:
        raise NotImplementedError

    def values(self) -> list[Value] | None:
        return [("wrong", self._wrong)] if self._wrong else self.held()

    def held(self) -> list[Value] | None:
        """What another client finds there."""
        raise NotImplementedError

    def drop(self) -> None: ...


class Files(Vertex):
    """The Parquet files of a vertex's result."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        super().__init__(spark)
        del kind
        self._store = open_store(f"file://{folder}/files_{next(_numbers)}")

    def write(self, frame: DataFrame) -> PartitionManifest:
        location = f"{self._store.base_uri}/r"
        return write_result(self._spark, frame, result="r", location=location, store=self._store)

    def held(self) -> None:
        return None


class VertexIceberg(Vertex):
    """An Iceberg table with a column of type ``kind``, or none yet, that a vertex's result replaces."""

    def __init__(self, spark: SparkSession, properties: dict[str, str], kind: str) -> None:
        super().__init__(spark)
        self._name = f"db.t{next(_numbers)}"
        self._catalog = load_catalog("lake", **properties)
        self._catalog.create_namespace_if_not_exists("db")
        self._tables = Tables(lambda name: properties, lambda location: {}, open_store)
        os.environ[catalog_variable("lake")] = json.dumps(properties)  # with which a driver reads
        if kind != NEW:
            self._catalog.create_table(self._name, Schema(NestedField(1, "v", iceberg_type(kind), required=False)))

    def write(self, frame: DataFrame) -> PartitionManifest:
        commit = commit_to(f"iceberg://lake/{self._name}")
        return write_iceberg(self._spark, frame, commit, logging.getLogger("t"), self._tables)

    def held(self) -> list[Value]:
        if not self._catalog.table_exists(self._name):
            return []
        # pyiceberg reads a null as an empty list, if the items are structs: pyarrow reads what the files have.
        files = [each.file.file_path for each in self._catalog.load_table(self._name).scan().plan_files()]
        return [value for file in files for value in values_of(pq.read_table(file.removeprefix("file://"))["v"])]

    def drop(self) -> None:
        if self._catalog.table_exists(self._name):
            self._catalog.drop_table(self._name)


class VertexDelta(Vertex):
    """A Delta table with a column of type ``kind``, or none yet, that a vertex's result replaces."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        super().__init__(spark)
        self._table = Delta(folder, kind)
        self._is_new = kind == NEW

    def commit(self, manifest: PartitionManifest) -> str:
        if self._is_new:
            return super().commit(manifest)
        # Spark reads the type of the table's column, which may be a wider one: delta-rs compares what it means.
        return self.write(rows_of(self._spark, manifest)).location

    def write(self, frame: DataFrame) -> PartitionManifest:
        return write_delta(self._spark, frame, commit_to(f"delta+file://{self._table.uri}"), logging.getLogger("t"))

    def held(self) -> list[Value] | None:
        return None if self._is_new else self._table.values()


class Jdbc(Vertex):
    """A table in PostgreSQL that Spark's own ``jdbc`` makes, and reads again."""

    def __init__(self, spark: SparkSession, address: dict[str, str | int], kind: str) -> None:
        super().__init__(spark)
        del kind
        self._place = Postgres(address, "text")
        self._place.drop_table()
        self._options = {
            "url": f"jdbc:postgresql://{address['host']}:{address['port']}/{address['dbname']}",
            "user": str(address["user"]),
            "password": str(address["password"]),
            "driver": "org.postgresql.Driver",
            "dbtable": self._place.table,
        }

    def commit(self, manifest: PartitionManifest) -> str:
        frame = rows_of(self._spark, manifest)
        frame.write.format("jdbc").options(**self._options).save()
        read = self._spark.read.format("jdbc").options(**self._options).load()
        return self.compared(shown(frame), shown(read), self._place.table)

    def held(self) -> None:
        return None

    def drop(self) -> None:
        self._place.drop()


def commit_to(table: str) -> TableCommit:
    return TableCommit("made", table, f"{KEY.path}#made", 1, token_of(KEY, 1, "w"), None)


def targets_of(way: str) -> Iterator[str]:
    """The types of a column on this way."""
    if way == "PostgresTable":
        yield from POSTGRES
        return
    if way != "IcebergTable":
        yield NEW
    for kind in () if way in ("files of a vertex", "Spark's jdbc") else LAKE:
        with suppress(ValueError):
            delta_type(kind) if "elta" in way else iceberg_type(kind)
            yield kind
