"""Let Spark's write fail at a value that Spark can read again, and other clients of the table can't.

These are texts that are not UTF-8, and dates and timestamps outside of the years 1 to 9999, at any depth of a column.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_recovery.model.spark_types import Kind, columns_of, leaves, sql_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MARK = "airflow-recovery: unreadable value in column "
_TIMES = {
    "date": "BETWEEN DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "BETWEEN TIMESTAMP_LTZ'0001-01-01 00:00:00Z' AND TIMESTAMP_LTZ'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "BETWEEN TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def checked(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return ``rows``, whose write fails at an unreadable value in a column of ``schema``.

    Spark checks each row while it writes it, so the rows are neither computed nor read twice.
    """
    conditions = [_readable(_quoted(name), kind, itertools.count()) for name, kind in columns_of(schema.json()).items()]
    cases = " ".join(
        f"WHEN NOT ({condition}) THEN raise_error('{_MARK}{at}.')"
        for at, condition in enumerate(conditions)
        if condition is not None
    )
    # Spark would check rows that a join drops later, if the condition did not depend on the partition.
    return rows.where(f"CASE {cases} ELSE spark_partition_id() >= 0 END") if cases else rows


def unreadable_value(schema: StructType, error: Exception) -> str | None:
    """Return which value was expected and found, if the write of `checked` rows failed at one; otherwise `None`."""
    found = re.search(rf"{_MARK}(\d+)\.", str(error))
    if found is None:
        return None
    name, kind = [*columns_of(schema.json()).items()][int(found[1])]
    is_text, is_time = "string" in leaves(kind), not _TIMES.keys().isdisjoint(leaves(kind))
    expected = " and ".join(["texts in UTF-8"] * is_text + ["years from 1 to 9999"] * is_time)
    return f"expected {expected} in column {name} ({sql_name(kind)}), found a value that not every client can read"


def _readable(value: str, kind: Kind, numbers: Iterator[int]) -> str | None:
    """SQL that is true if other clients can read ``value``; `None`: they can read each value of ``kind``."""
    if isinstance(kind, str):
        condition = _is_utf8(value) if kind == "string" else f"{value} {_TIMES[kind]}" if kind in _TIMES else None
        return condition and f"coalesce({condition}, true)"
    name, *items = kind
    if name == "struct":
        conditions = [_readable(f"{value}.{_quoted(member)}", item, numbers) for member, item in items[0]]
    elif name == "map":
        conditions = [_each(f"map_keys({value})", items[0], numbers), _each(f"map_values({value})", items[1], numbers)]
    else:
        conditions = [_each(value, items[0], numbers)]
    return " AND ".join(filter(None, conditions)) or None


def _each(values: str, kind: Kind, numbers: Iterator[int]) -> str | None:
    item = f"item{next(numbers)}"
    condition = _readable(item, kind, numbers)
    return condition and f"coalesce(forall({values}, {item} -> {condition}), true)"


def _is_utf8(value: str) -> str:
    from pyspark.sql import functions

    if hasattr(functions, "is_valid_utf8"):
        return f"is_valid_utf8({value})"
    # Before Spark 4.0, decode replaces each byte that is not UTF-8.
    return f"encode(decode(CAST({value} AS BINARY), 'UTF-8'), 'UTF-8') = CAST({value} AS BINARY)"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
