"""Which partition of an Iceberg table a row lies in, as Spark computes it; and what becomes of that in a file's name.

Spark writes each partition's rows into files of their own, in a folder that is named by the partition's values. These
are columns that are there for this alone, so that the files have the vertex's columns, and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType
    from pyspark.sql import Column, DataFrame

_COLUMN = "airflow_recovery_partition_"
_DAY, _HOUR = 86_400_000_000, 3_600_000_000
_WHOLE = ("int", "long")
_TIMES = ("date", "timestamp", "timestamptz")
_TAKES: dict[str, tuple[str, ...]] = {
    "identity": (*_WHOLE, *_TIMES, "boolean", "decimal", "string"),
    "bucket": (*_WHOLE, *_TIMES, "string"),
    "truncate": (*_WHOLE, "string"),
    "year": _TIMES,
    "month": _TIMES,
    "day": _TIMES,
    "hour": _TIMES[1:],
    "void": (),
}
"""The types of columns, by the transforms of partitions, that are written here."""


def why_not_written(spec: PartitionSpec, schema: Schema) -> str | None:
    """For people: the partition that is not written here, and what is; `None` where all are."""
    for field in spec.fields:
        transform, name = _name_of(field), schema.find_column_name(field.source_id)
        source = next((column for column in schema.fields if column.field_id == field.source_id), None)
        kind = "a column inside another one" if source is None else _kind_of(source.field_type)
        if transform != "void" and kind not in _TAKES.get(transform, ()):
            return (
                f"expected partitions by {', '.join(sorted(_TAKES))} of whole numbers, dates, timestamps or texts "
                f"(identity of booleans and decimals too), found {field.transform}({name}) of {kind}"
            )
    return None


def with_partitions(frame: DataFrame, spec: PartitionSpec, schema: Schema) -> tuple[DataFrame, list[str]]:
    """``frame`` with the columns by which it is to be partitioned, and their names. A partition is one task's."""
    from pyspark.sql import functions

    columns = {
        f"{_COLUMN}{at}": _text_of(frame, field, schema)
        for at, field in enumerate(spec.fields)
        if _name_of(field) != "void"  # what is left of a partition that was dropped
    }
    if not columns:
        return frame, []
    named = [column.alias(name) for name, column in columns.items()]
    return frame.select("*", *named).repartition(*map(functions.col, columns)), [*columns]


def partition_of(path: str, spec: PartitionSpec, schema: Schema) -> list[Any]:
    """The values of a file's partition, as Iceberg's manifests have them, from its path below the written folder."""
    folders = dict(folder.partition("=")[::2] for folder in path.split("/")[:-1])
    return [
        _value_of(folders.get(f"{_COLUMN}{at}", "n"), field, schema.find_field(field.source_id).field_type)
        for at, field in enumerate(spec.fields)
    ]


def bucket_of(value: int | str, buckets: int) -> int:
    """The bucket of a value as Iceberg's specification has it: whole numbers, days, microseconds, or a text."""
    body = value.encode() if isinstance(value, str) else value.to_bytes(8, "little", signed=True)
    return (_murmur3(body) & 0x7FFFFFFF) % buckets


def _text_of(frame: DataFrame, field: PartitionField, schema: Schema) -> Column:
    """What names the folder: ``v`` and the value, a text as hexadecimal digits; ``n`` for none."""
    from pyspark.sql import functions

    source = schema.find_field(field.source_id)
    kind, name = _kind_of(source.field_type), "`" + source.name.replace("`", "``") + "`"
    transform = _name_of(field)
    if source.name not in frame.columns:
        return functions.lit("n")
    is_text = kind == "string" and transform != "bucket"
    value = functions.expr(_SQL[transform](name, kind, _width_of(field)))
    if transform == "bucket":
        value = functions.udf(_bucketing(_width_of(field)), "int")(value)
    written = functions.hex(value) if is_text else value.cast("string")
    return functions.coalesce(functions.concat(functions.lit("v"), written), functions.lit("n"))


def _bucketing(buckets: int) -> Callable[[int | str | None], int | None]:
    return lambda value: None if value is None else bucket_of(value, buckets)


def _value_of(text: str, field: PartitionField, source: IcebergType) -> Any:
    if text == "n":
        return None
    kind, transform, value = _kind_of(source), _name_of(field), text[1:]
    if transform in ("identity", "truncate") and kind == "string":
        return bytes.fromhex(value).decode()
    if kind == "boolean":
        return value == "true"
    return Decimal(value) if kind == "decimal" else int(value)


def _whole(name: str, kind: str, width: int = 0) -> str:
    """What Iceberg keeps of a value: days since 1970, microseconds since then, the number or the text itself."""
    del width
    if kind == "date":
        return f"unix_date({name})"
    if kind == "timestamptz":
        return f"unix_micros({name})"
    if kind == "timestamp":  # its clock, which has no zone
        seconds = f"CAST(extract(SECOND FROM {name}) * 1000000 AS BIGINT)"
        minutes = f"hour({name}) * 60L + minute({name})"
        return f"unix_date(CAST({name} AS DATE)) * {_DAY}L + ({minutes}) * 60000000L + {seconds}"
    return f"CAST({name} AS BIGINT)" if kind in _WHOLE else name


def _days(name: str, kind: str, width: int = 0) -> str:
    if kind == "timestamptz":
        return _floored(_whole(name, kind), _DAY)
    return f"unix_date({name})" if kind == "date" else f"unix_date(CAST({name} AS DATE))"


def _years(name: str, kind: str, width: int = 0) -> str:
    return f"year({_date(name, kind)}) - 1970"


def _months(name: str, kind: str, width: int = 0) -> str:
    return f"(year({_date(name, kind)}) - 1970) * 12 + month({_date(name, kind)}) - 1"


def _hours(name: str, kind: str, width: int = 0) -> str:
    if kind == "timestamptz":
        return _floored(_whole(name, kind), _HOUR)
    return f"{_days(name, kind)} * 24 + hour({name})"


def _truncated(name: str, kind: str, width: int) -> str:
    if kind == "string":
        return f"substring({name}, 1, {width})"
    return f"{_whole(name, kind)} - pmod({_whole(name, kind)}, {width}L)"


def _date(name: str, kind: str) -> str:
    return f"date_from_unix_date(CAST({_days(name, kind)} AS INT))"


def _floored(whole: str, by: int) -> str:
    return f"({whole} - pmod({whole}, {by}L)) div {by}L"


_SQL: dict[str, Callable[[str, str, int], str]] = {
    "identity": _whole,
    "bucket": _whole,
    "truncate": _truncated,
    "year": _years,
    "month": _months,
    "day": _days,
    "hour": _hours,
}


def _name_of(field: PartitionField) -> str:
    return str(field.transform).partition("[")[0]


def _width_of(field: PartitionField) -> int:
    """Of ``bucket[8]`` and ``truncate[8]``: 8."""
    return int(str(field.transform).partition("[")[2].rstrip("]") or 0)


def _kind_of(column: IcebergType) -> str:
    return str(column).partition("(")[0]


def _murmur3(body: bytes) -> int:
    """The 32 bits of Murmur3 (x86) with the seed 0."""
    state = 0
    whole = len(body) - len(body) % 4
    for at in range(0, whole, 4):
        state = _rotated(state ^ _mixed(int.from_bytes(body[at : at + 4], "little")), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    state ^= _mixed(int.from_bytes(body[whole:], "little")) ^ len(body)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & 0xFFFFFFFF
    return state


def _mixed(block: int) -> int:
    return _rotated(block * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
