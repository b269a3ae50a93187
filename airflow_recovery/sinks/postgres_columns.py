"""How the values of a result go into the columns of a table in PostgreSQL, so that each is the same there.

A pair of a Spark type and a column's type is one of three:

    as it is    the column holds every value of the type: the value is copied into it
    by value    not every value fits: the server compares each one, as Spark has it, with what would be in the table
    refused     by the name of the column, before anything is copied
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_recovery.model.spark_types import Kind, decimal_digits, is_interval, is_of_months

NATIVE = {
    "boolean": "boolean", "byte": "smallint", "short": "smallint", "integer": "integer", "long": "bigint",
    "float": "real", "double": "double precision", "string": "text", "date": "date",
    "timestamp": "timestamp with time zone", "timestamp_ntz": "timestamp without time zone",
    "time": "time without time zone",
}  # fmt: skip
"""The type of PostgreSQL that has the values of Spark's type; of a decimal it is numeric, of an interval interval."""

_TEXTS = ("text", "varchar")
_AS_IS = {
    "boolean": ("bool", *_TEXTS),
    "byte": ("int2", "int4", "int8", "numeric", "float4", "float8", *_TEXTS),
    "short": ("int2", "int4", "int8", "numeric", "float4", "float8", *_TEXTS),
    "integer": ("int4", "int8", "numeric", "float8", *_TEXTS),
    "long": ("int8", "numeric", *_TEXTS),
    "float": ("float4", "float8", *_TEXTS),
    "double": ("float8", *_TEXTS),
    "decimal": ("numeric", *_TEXTS),
    "string": _TEXTS,
    "date": ("date", "timestamp", *_TEXTS),
    "timestamp": ("timestamptz", "timestamp", *_TEXTS),
    "timestamp_ntz": ("timestamp", *_TEXTS),
    "time": ("time", *_TEXTS),
    "interval": ("interval",),
}
"""Types of columns, as the server's catalogue names them, that hold every value of Spark's type.

A moment is its clock time in UTC in a column without a zone.
"""
_BY_VALUE = {
    "integer": ("int2", "float4"),
    "long": ("int2", "int4", "float4", "float8"),
    "float": ("int2", "int4", "int8", "numeric"),
    "double": ("int2", "int4", "int8", "numeric", "float4"),
    "decimal": ("int2", "int4", "int8", "float8"),
    "string": (
        "int2", "int4", "int8", "numeric", "float4", "float8", "bpchar", "name", "bytea", "date", "time", "timetz",
        "timestamp", "timestamptz", "interval", "bit", "varbit", "money",
    ),
}  # fmt: skip
"""Of a string, the types whose text can be another one."""
_READ_AS_IT_IS = (
    "bool", "text", "varchar", "json", "jsonb", "xml", "uuid", "inet", "cidr", "macaddr", "macaddr8", "int4range",
    "int8range", "daterange", "int4multirange", "int8multirange", "datemultirange",
)  # fmt: skip
"""The server's own types that read a text without rounding, cutting or guessing, or refuse it."""
_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_WRITTEN = {
    "timestamp": "[0-9]+-[0-9]+-[0-9]+([ T][0-9]+:[0-9]+(:[0-9]+([.][0-9][0-9]?[0-9]?[0-9]?[0-9]?[0-9]?)?)?)?",
    "timestamptz": "[0-9]+-[0-9]+-[0-9]+[ T][0-9]+:[0-9]+(:[0-9]+([.][0-9][0-9]?[0-9]?[0-9]?[0-9]?[0-9]?)?)? ?"
    "(Z|[+-][0-9]+(:?[0-9]+)?)",
    "interval": "([+-]?[0-9]+ ?[a-z]+ ?)*([+-]?[0-9]+:[0-9]+(:[0-9]+([.][0-9]+)?)?)?",
}
"""How a string says a time, so that the server reads it as it is: without a zone, with one, and how long it is."""


@dataclass(frozen=True)
class TableColumn:
    """A column of the table. ``sql``: its type, as SQL writes it. ``base``: its name in the catalogue; of a domain, the
    name of its base type. ``limit``: its type's modifier, -1 if it has none, such as the length of varchar(3).
    ``form``: ``pg_type.typtype`` of the base type. ``is_own``: it is a type of the server, not of an extension or user.
    ``item``: the type of an array's items."""

    sql: str
    base: str
    limit: int
    form: str = "b"
    is_own: bool = True
    item: TableColumn | None = None


@dataclass(frozen=True)
class Fit:
    """How a column is copied. ``via``: the type that it is copied into, if that is not the table's own.

    ``unlike``: SQL that is true of a value ``{0}`` that would be another one in the table.
    """

    via: str | None = None
    unlike: str | None = None


def fit(kind: Kind, column: TableColumn) -> Fit | None:
    """How values of ``kind`` go into ``column``; `None`: they may not."""
    if kind == "void":
        return Fit()
    if not isinstance(kind, str):
        return None
    digits = decimal_digits(kind)
    name = "decimal" if digits is not None else "interval" if is_interval(kind) else kind
    if column.base in _AS_IS.get(name, ()):
        if column.limit == -1 or (digits is not None and _has_room(digits, column)):
            return Fit()
    elif name == "string":
        if _reads_as_it_is(column):
            return Fit()
    elif column.base not in _BY_VALUE.get(name, ()):
        return None
    if name == "string":
        return Fit("text", _unlike_text(column))
    if name in ("float", "double") and column.base == "numeric":
        # By its text, since the server's cast to numeric keeps fewer digits than the number has.
        own = native(kind)
        return Fit("text", f"{cast_to(column)}::{own} IS DISTINCT FROM {{0}}::{own}")
    via = "text" if column.base in _TEXTS else native(kind)
    if (name, column.base) == ("timestamp", "timestamp"):
        via = NATIVE["timestamp_ntz"]
    return Fit(via, f"{cast_to(column)}::{via} IS DISTINCT FROM {{0}}")


def cast_to(column: TableColumn) -> str:
    """SQL that makes a value of the column's type of ``{0}``."""
    return f"CAST({{0}} AS {column.sql.replace('{', '{{').replace('}', '}}')})"


def _reads_as_it_is(column: TableColumn) -> bool:
    """Whether the server reads each text for the column as it is, or refuses it.

    It rounds or cuts items of an array, members of a row and ends of a range without an error.
    """
    if column.limit != -1:
        return False
    if column.item is not None:
        return _reads_as_it_is(column.item)
    return column.form == "e" or (column.base in _READ_AS_IT_IS if column.is_own else column.form == "b")


def _unlike_text(column: TableColumn) -> str:
    if column.base == "varchar":
        return f"char_length({{0}}) > {column.limit - 4}"
    cast = cast_to(column)
    if column.base in ("numeric", "float4", "float8"):
        return f"{cast}::text::numeric IS DISTINCT FROM {{0}}::numeric OR {{0}} ~ '^[+-]?0[0-9]'"
    if column.item is not None and column.item.base in _NUMBERS:
        as_numbers = f"{cast}::text::numeric[] IS DISTINCT FROM {{0}}::numeric[]"
        return f"{as_numbers} OR {{0}} ~ '[^0-9.eE+-][+-]?0[0-9]'"
    unlike = f"{cast}::text IS DISTINCT FROM {{0}}"
    if column.base == "bpchar":
        # The server fills a shorter text with blanks, and takes those at the end for nothing.
        return f"char_length({{0}}) <> {column.limit - 4} AND {unlike}"
    if column.base in _WRITTEN and column.limit == -1:
        return f"{{0}} !~ '^{_WRITTEN[column.base]}$' OR {cast} <> {cast}"
    return unlike


def native(kind: Kind) -> str | None:
    """The type of PostgreSQL that has the values of ``kind``; `None`: there is none."""
    if is_interval(kind):
        return "interval"
    return "numeric" if decimal_digits(kind) is not None else NATIVE.get(str(kind))


def copied(array: Any, kind: Kind, column: TableColumn) -> Any:
    """The values in the form in which COPY reads them right."""
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.compute  # type: ignore[import-untyped]

    if is_interval(kind):
        unit = " months" if is_of_months(kind) else " microseconds"
        return pyarrow.compute.binary_join_element_wise(array.cast(pyarrow.string()), unit, "")
    # A text of a float is the shortest one for 32 bits: read as 64 bits it would be another number.
    return array.cast(pyarrow.float64()) if (kind, column.base) == ("float", "float8") else array


_COLUMNS = """
WITH RECURSIVE based(oid, base, modifier) AS (
    SELECT oid, oid, -1 FROM pg_catalog.pg_type
    UNION ALL SELECT based.oid, t.typbasetype, t.typtypmod
    FROM based JOIN pg_catalog.pg_type t ON t.oid = based.base WHERE t.typtype = 'd'
)
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), b.typname,
    CASE WHEN own.modifier = -1 THEN a.atttypmod ELSE own.modifier END, b.typtype::text,
    b.typnamespace = 'pg_catalog'::regnamespace,
    pg_catalog.format_type(b.typelem, NULL), i.typname, items.modifier, i.typtype::text,
    i.typnamespace = 'pg_catalog'::regnamespace
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN based own ON own.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = own.base AND b.typtype <> 'd'
LEFT JOIN (based items JOIN pg_catalog.pg_type i ON i.oid = items.base AND i.typtype <> 'd')
    ON items.oid = b.typelem AND b.typcategory = 'A'
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
"""The columns of a table. ``based`` follows each domain to the type below it, which may be a domain as well."""


def columns_of(cursor: Any, schema: str, table: str) -> dict[str, TableColumn]:
    """The columns of a table, by its exact name."""
    cursor.execute(_COLUMNS, (schema, table))
    columns = {}
    for name, sql, base, limit, form, is_own, *item in cursor.fetchall():
        items = TableColumn(*item) if item[1] is not None else None
        columns[name] = TableColumn(sql, base, limit, form, is_own, items)
    return columns


def _has_room(digits: tuple[int, int], column: TableColumn) -> bool:
    """Whether numeric(p,s) has so many digits before and after the point."""
    found = re.search(r"\((\d+),(-?\d+)\)$", column.sql)
    if found is None:
        return False
    scale = int(found[2])
    return digits[0] <= int(found[1]) - scale and digits[1] <= scale
