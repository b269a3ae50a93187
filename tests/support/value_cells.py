"""Cells of the matrix of values: a Spark type, its values at the edges, a way that a row can go, and what became of it.

Values are compared by what they mean, in a form that no product code makes: a pair of a tag and a Python value. A
moment is its microseconds since 1970 in UTC, a date its days, an interval its microseconds or its months.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = tuple[str, Any] | None
DAY_US = 86_400_000_000


def day(year: int, month: int, of_month: int) -> int:
    """The days from 1970-01-01 to a date of the proleptic Gregorian calendar, in any year."""
    years = year - (month <= 2)
    era, months = years // 400, (month + 9) % 12
    of_era = years - era * 400
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + (153 * months + 2) // 5 + of_month - 1 - 719468


@dataclass(frozen=True)
class SparkType:
    """``values``: {an expression of Spark's SQL: what it means}. ``conf``: settings while it is written."""

    name: str
    values: Mapping[str, Value]
    conf: Mapping[str, str] = field(default_factory=dict)
    table: str = ""
    """If given, the rows go through a table with a column of this type."""


def _whole(name: str, bits: int) -> SparkType:
    values = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 7, 0)
    return SparkType(name, {f"CAST('{value}' AS {name})": ("number", Decimal(value)) for value in values})


def _floating(name: str, texts: Iterable[str]) -> SparkType:
    def exact(text: str) -> float:
        return float(text) if name == "double" else pa.scalar(float(text), pa.float32()).as_py()

    return SparkType(name, {f"CAST('{text}' AS {name})": ("float", exact(text)) for text in texts})


def _decimal(precision: int, scale: int, *texts: str) -> SparkType:
    most = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
    least = "0." + "0" * (scale - 1) + "1" if scale else "1"
    name = f"decimal({precision},{scale})"
    return SparkType(
        name,
        {f"CAST('{text}' AS {name})": ("number", Decimal(text)) for text in (most, "-" + most, least, "0", *texts)},
    )


_DATES = [(1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1969, 12, 31), (2026, 1, 2), (9999, 12, 31)]
_FAR_DATES = [(10000, 1, 1), (-1, 1, 1), (0, 12, 31), (290000, 1, 1)]


def _dates(dates: Iterable[tuple[int, int, int]]) -> Iterator[tuple[str, int]]:
    for year, month, of_month in dates:
        sign = "+" if year > 9999 else "-" if year < 0 else ""
        yield f"{sign}{abs(year):04}-{month:02}-{of_month:02}", day(year, month, of_month)


def _times(name: str, tag: str) -> SparkType:
    values: dict[str, Value] = {}
    for text, days in _dates([*_DATES, *_FAR_DATES]):
        values[f"{name}'{text} 00:00:00'"] = (tag, days * DAY_US)
    values[f"{name}'2026-03-29 02:30:00.123456'"] = (tag, day(2026, 3, 29) * DAY_US + 9_000_123_456)
    values[f"{name}'9999-12-31 23:59:59.999999'"] = (tag, day(9999, 12, 31) * DAY_US + DAY_US - 1)
    values[f"{name}'1500-01-01 00:00:00.000001'"] = (tag, day(1500, 1, 1) * DAY_US + 1)
    return SparkType(name.lower(), values)


def _spans(fields: str, tag: str, values: Mapping[str, int]) -> SparkType:
    return SparkType(
        f"interval {fields.lower()}", {f"INTERVAL '{text}' {fields}": (tag, value) for text, value in values.items()}
    )


_LEGACY = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}
_TEXTS = {
    "'a'": "a",
    "''": "",
    r"r'\.'": r"\.",
    r"r'\N'": r"\N",
    "'NULL'": "NULL",
    "' a  '": " a  ",
    "'é😀'": "é😀",
    "'ABC'": "ABC",
    r"'a\"b,\nc'": 'a"b,\nc',
    "'7'": "7",
    "'007'": "007",
    "'1.50'": "1.50",
    "'true'": "true",
    "'yes'": "yes",
    "'2026-01-02'": "2026-01-02",
    "'01:00:00'": "01:00:00",
    "'[1]'": "[1]",
    "'{1.234,NULL}'": "{1.234,NULL}",
    "'{7}'": "{7}",
    "'-7'": "-7",
    "'[\"2026-01-02 00:00:00\",)'": '["2026-01-02 00:00:00",)',
    "'longer than ten'": "longer than ten",
}

TYPES: tuple[SparkType, ...] = (
    SparkType("boolean", {"true": ("bool", True), "false": ("bool", False)}),
    _whole("tinyint", 8),
    _whole("smallint", 16),
    _whole("int", 32),
    _whole("bigint", 64),
    _floating("float", ("0.1", "1.5", "-0.0", "NaN", "Infinity", "-Infinity", "3.4028235E38", "1.4E-45")),
    _floating(
        "double",
        (
            "0.1",
            "1.5",
            "0.3333333333333333",
            "-0.0",
            "NaN",
            "Infinity",
            "-Infinity",
            "1.7976931348623157E308",
            "4.9E-324",
        ),
    ),
    _decimal(1, 0),
    _decimal(5, 2),
    _decimal(10, 2, "1.50"),
    _decimal(18, 6, "1.5"),
    _decimal(19, 0),
    _decimal(38, 0),
    _decimal(38, 18, "1.5"),
    _decimal(38, 38),
    SparkType("string", {expression: ("text", text) for expression, text in _TEXTS.items()}),
    SparkType("string with U+0000", {r"'a\u0000b'": ("text", "a\0b")}),
    SparkType("string that is not UTF-8", {"CAST(X'ff61' AS STRING)": ("bytes of text", b"\xffa")}),
    SparkType(
        "string collate UNICODE_CI", {"'a' COLLATE UNICODE_CI": ("text", "a"), "'A' COLLATE UNICODE_CI": ("text", "A")}
    ),
    SparkType("char(3)", {"'abc'": ("text", "abc"), "'a'": ("text", "a  ")}, table="char(3)"),
    SparkType("varchar(3)", {"'abc'": ("text", "abc"), "'a '": ("text", "a ")}, table="varchar(3)"),
    SparkType("binary", {"X'00ff'": ("bytes", b"\0\xff"), "X''": ("bytes", b""), "X'6162'": ("bytes", b"ab")}),
    SparkType("date", {f"DATE'{text}'": ("date", days) for text, days in _dates([*_DATES, *_FAR_DATES])}),
    _times("TIMESTAMP", "moment"),
    _times("TIMESTAMP_NTZ", "clock"),
    SparkType(
        "date of a LEGACY writer",
        {"DATE'1500-01-01'": ("date", day(1500, 1, 1)), "DATE'2026-01-02'": ("date", day(2026, 1, 2))},
        _LEGACY,
    ),
    SparkType(
        "timestamp of a LEGACY writer",
        {
            "TIMESTAMP'1500-01-01 00:00:00'": ("moment", day(1500, 1, 1) * DAY_US),
            "TIMESTAMP'2026-01-02 00:00:00'": ("moment", day(2026, 1, 2) * DAY_US),
        },
        _LEGACY,
    ),
    SparkType(
        "timestamp as MICROS",
        {"TIMESTAMP'1500-01-01 00:00:00'": ("moment", day(1500, 1, 1) * DAY_US)},
        {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"},
    ),
    SparkType(
        "time(6)",
        {"TIME'00:00:00'": ("time", 0), "TIME'23:59:59.999999'": ("time", DAY_US - 1)},
        {"spark.sql.timeType.enabled": "true"},
    ),
    _spans(
        "DAY TO SECOND",
        "micros",
        {"0 00:30:00": 1_800_000_000, "-1 02:03:04.500000": -93_784_500_000, "106751991 04:00:54.775807": 2**63 - 1},
    ),
    _spans("DAY", "micros", {"1": DAY_US, "-40": -40 * DAY_US}),
    _spans("HOUR", "micros", {"3": 10_800_000_000}),
    _spans("SECOND", "micros", {"0.000001": 1}),
    _spans("YEAR TO MONTH", "months", {"1-2": 14, "-0-1": -1, "178956970-7": 2**31 - 1}),
    _spans("YEAR", "months", {"2": 24}),
    _spans("MONTH", "months", {"5": 5}),
    SparkType(
        "array<int>", {"array(1, CAST(NULL AS INT))": ("list", [("number", Decimal(1)), None]), "array()": ("list", [])}
    ),
    SparkType(
        "array<timestamp>", {"array(TIMESTAMP'1500-01-01 00:00:00')": ("list", [("moment", day(1500, 1, 1) * DAY_US)])}
    ),
    SparkType("array<interval day>", {"array(INTERVAL '1' DAY)": ("list", [("micros", DAY_US)])}),
    SparkType("array<variant>", {"array(parse_json('1'))": ("list", [("variant", "1")])}),
    SparkType("map<string,int>", {"map('a', 1)": ("map", [(("text", "a"), ("number", Decimal(1)))])}),
    SparkType(
        "struct<a:int,b:string>",
        {"named_struct('a', 1, 'b', 'x')": ("struct", [("a", ("number", Decimal(1))), ("b", ("text", "x"))])},
    ),
    SparkType(
        "struct<a:interval month>", {"named_struct('a', INTERVAL '5' MONTH)": ("struct", [("a", ("months", 5))])}
    ),
    SparkType(
        "array<struct<a:map<string,double>>>",
        {
            "array(named_struct('a', map('k', 0.5D)))": (
                "list",
                [("struct", [("a", ("map", [(("text", "k"), ("float", 0.5))]))])],
            )
        },
    ),
    SparkType("variant", {"parse_json('{\"a\":1}')": ("variant", '{"a":1}'), "parse_json('1.5')": ("variant", "1.5")}),
    SparkType("geometry", {"st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')": ("geometry", b"")}),
    SparkType("void", {}),
)
"""Each value at an edge of each type. Each type has nulls as well."""


@dataclass(frozen=True)
class Staged:
    """The files of one type: one for each value, as Spark has written them."""

    type: SparkType
    store: LocalStore
    files: tuple[ResultObject, ...]
    values: tuple[Value, ...]

    def manifest(self, only: int | None = None) -> PartitionManifest:
        """All values, or one of them."""
        files = self.files if only is None else self.files[only : only + 1]
        return PartitionManifest("delays", self.store.base_uri, files, rows=len(files))


def write_types(spark: SparkSession, folder: Path, types: Sequence[SparkType] = TYPES) -> dict[str, Staged]:
    """Have Spark write the values of each type, each value in a file of its own; and a null."""
    return {kind.name: _write(spark, folder / str(at), kind) for at, kind in enumerate(types)}


def _write(spark: SparkSession, folder: Path, kind: SparkType) -> Staged:
    for name, value in kind.conf.items():
        spark.conf.set(name, value)
    try:
        first = next(iter(kind.values), "NULL")
        # A null of the type, without a cast: not each type has a name that a cast takes.
        rows = [*kind.values, *(["nullif(x, x)"] if kind.values else ["x"])]
        selects = " UNION ALL ".join(
            f"SELECT {at} AS i, {expression} AS v"
            if expression not in ("nullif(x, x)", "x")
            else f"SELECT {at} AS i, CASE WHEN rand(1) < 2 THEN NULL ELSE {first} END AS v"
            for at, expression in enumerate(rows)
        )
        frame = spark.sql(selects)
        if kind.table:
            spark.sql("DROP TABLE IF EXISTS of_a_kind")
            spark.sql(f"CREATE TABLE of_a_kind (i INT, v {kind.table}) USING parquet LOCATION '{folder}_table'")
            frame.write.insertInto("of_a_kind")
            frame = spark.table("of_a_kind")
        frame.coalesce(1).write.partitionBy("i").parquet(str(folder))
    finally:
        for name in kind.conf:
            spark.conf.unset(name)
    store = LocalStore(str(folder))
    files = {
        int(info.key.split("/")[0].removeprefix("i=")): ResultObject(info.key, info.size, info.etag)
        for info in store.list()
        if info.key.endswith(".parquet")
    }
    values = (*kind.values.values(), None)
    assert len(files) == len(values), f"{kind.name}: {files}"
    return Staged(kind, store, tuple(files[at] for at in range(len(values))), values)


def means_the_same(expected: Value, found: Value) -> bool:
    """Whether ``found``, read from a target, is the value that Spark had."""
    if expected is None or found is None:
        return expected is None and found is None
    (tag, value), (found_tag, other) = expected, found
    if tag == found_tag:
        if tag == "float":
            return _same_float(value, other)
        if tag == "list":
            return len(value) == len(other) and all(map(means_the_same, value, other))
        if tag == "map":
            return len(value) == len(other) and all(
                means_the_same(*keys) and means_the_same(*items)
                for keys, items in (zip(*pair, strict=True) for pair in zip(value, other, strict=True))
            )
        if tag == "struct":
            return [name for name, _ in value] == [name for name, _ in other] and all(
                means_the_same(mine, its) for (_, mine), (_, its) in zip(value, other, strict=True)
            )
        return bool(value == other)
    widened: dict[tuple[str, str], Callable[[], bool]] = {
        # The shortest text that means this number: what PostgreSQL compares as well.
        ("number", "float"): lambda: (
            math.isfinite(other) and (Decimal(other) == value or Decimal(repr(other)) == value)
        ),
        ("float", "number"): lambda: _same_float(value + 0.0, _as_wide(other, value)),
        ("float", "text"): lambda: _same_float(value, _as_wide(other, value)),
        ("moment", "clock"): lambda: value == other,
        ("moment", "text"): lambda: other.endswith("Z") and _micros(other.removesuffix("Z")) == value,
        ("clock", "text"): lambda: _micros(other) == value,
        ("time", "text"): lambda: _micros(f"1970-01-01 {other}") == value,
        ("text", "filled"): lambda: other == value or other.rstrip(" ") == value,
        ("number", "text"): lambda: other == f"{value:f}" or Decimal(other) == value,
        ("bool", "text"): lambda: other == str(value).lower(),
        ("date", "clock"): lambda: value * DAY_US == other,
        ("date", "text"): lambda: other == (datetime.date(1970, 1, 1) + datetime.timedelta(value)).isoformat(),
        ("text", "number"): lambda: Decimal(value) == other and value != "007",
        ("text", "bool"): lambda: (value in ("true", "yes")) == other,
        ("text", "float"): lambda: float(value) == other,
        ("text", "clock"): lambda: _micros(value) == other,
        ("text", "micros"): lambda: (value, other) == ("01:00:00", 3_600_000_000),
        ("text", "time"): lambda: (value, other) == ("01:00:00", 3_600_000_000),
        ("text", "date"): lambda: (datetime.date(1970, 1, 1) + datetime.timedelta(other)).isoformat() == value,
        ("text", "parsed"): lambda: True,
        ("bytes of text", "text"): lambda: value == other.encode("utf-8", "surrogateescape"),
    }
    check = widened.get((tag, found_tag))
    try:
        return check is not None and check()
    except (ArithmeticError, ValueError):
        return False


def _as_wide(number: Any, like: float) -> float:
    """A number as the floating point number nearest to it, of 32 bits if ``like`` is one of those."""
    found = float(number)
    narrow = pa.scalar(found, pa.float64()).cast(pa.float32(), safe=False).as_py()
    is_narrow = like == pa.scalar(like, pa.float64()).cast(pa.float32(), safe=False).as_py()
    return float(narrow) if is_narrow else found


def _micros(text: str) -> int:
    """The microseconds from 1970 to a time in ISO's form."""
    since = datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)
    return since // datetime.timedelta(microseconds=1)


def _same_float(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other and math.copysign(1, one) == math.copysign(1, other)


def all_the_same(expected: Iterable[Value], found: Iterable[Value]) -> bool:
    """Whether ``found`` has each value of ``expected`` once, in any order, and nothing else."""
    left = list(found)
    for value in expected:
        at = next((at for at, other in enumerate(left) if means_the_same(value, other)), None)
        if at is None:
            return False
        del left[at]
    return not left


def values_of(column: pa.ChunkedArray | pa.Array, kind: Any = None) -> list[Value]:
    """What an Arrow column means. ``kind``: its type, if a library has another name for it."""
    found: list[Value] = []
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        found += _of_array(chunk)
    return found


def _of_array(array: pa.Array) -> list[Value]:  # noqa: C901
    kind, types = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _of_array(array.storage)
    present = array.is_valid().to_pylist()

    def tagged(tag: str, values: Iterable[Any]) -> list[Value]:
        return [(tag, value) if there else None for value, there in zip(values, present, strict=True)]

    if types.is_boolean(kind):
        return tagged("bool", array.to_pylist())
    if types.is_integer(kind):
        return tagged("number", (value if value is None else Decimal(value) for value in array.to_pylist()))
    if types.is_decimal(kind):
        return tagged("number", array.to_pylist())
    if types.is_floating(kind):
        return tagged("float", array.to_pylist())
    if types.is_date32(kind):
        return tagged("date", array.cast(pa.int32()).to_pylist())
    if types.is_time(kind):
        return tagged("time", array.cast(pa.time64("us")).cast(pa.int64()).to_pylist())
    if types.is_timestamp(kind):
        micros = array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        return tagged("moment" if kind.tz else "clock", micros)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        raw = array.cast(pa.large_binary()).to_pylist()
        return tagged("text", (value and value.decode("utf-8", "surrogateescape") if value else "" for value in raw))
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    ):
        return tagged("bytes", array.to_pylist())
    if types.is_struct(kind):
        names = [member.name for member in kind]
        members = [_of_array(member) for member in array.flatten()]
        return tagged("struct", ([*zip(names, values, strict=True)] for values in zip(*members, strict=True)))
    if types.is_map(kind):
        keys, items = _of_array(array.keys), _of_array(array.items)
        ends = [0]
        for there, entry in zip(present, array.to_pylist(), strict=True):
            ends.append(ends[-1] + (len(entry) if there else 0))
        return tagged("map", ([*zip(keys[a:b], items[a:b], strict=True)] for a, b in itertools.pairwise(ends)))
    if types.is_list(kind) or types.is_large_list(kind):
        items, at, lists = _of_array(array.flatten()), 0, []
        for there, entry in zip(present, array.value_lengths().to_pylist(), strict=True):
            length = entry if there else 0
            lists.append(items[at : at + length])
            at += length
        return tagged("list", lists)
    return tagged(str(kind), array.to_pylist())
