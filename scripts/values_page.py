"""Draws the tables of docs/values.md from the rules of the sinks: `python -m scripts.values_page`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from airflow_recovery.model.spark_types import Kind, delta_takes, iceberg_has, iceberg_takes, lake_has, sql_name
from airflow_recovery.sinks.postgres_columns import TableColumn, fit
from scripts.generated_tables import drawn_into, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "values.md"
KINDS: tuple[Kind, ...] = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(10,2)", "decimal(38,0)",
    "decimal(38,38)", "string", "binary", "date", "timestamp", "timestamp_ntz", "time", "interval day to second",
    "interval year to month", ("array", "integer"), ("map", "string", "integer"),
    ("struct", (("a", "integer"), ("b", "string"))), ("array", "interval day"), "variant", "void",
)  # fmt: skip
POSTGRES = (
    TableColumn("boolean", "bool", -1), TableColumn("smallint", "int2", -1), TableColumn("integer", "int4", -1),
    TableColumn("bigint", "int8", -1), TableColumn("numeric", "numeric", -1),
    TableColumn("numeric(10,2)", "numeric", 655366), TableColumn("numeric(38,18)", "numeric", 2490390),
    TableColumn("real", "float4", -1), TableColumn("double precision", "float8", -1), TableColumn("text", "text", -1),
    TableColumn("varchar(10)", "varchar", 14), TableColumn("char(3)", "bpchar", 7), TableColumn("bytea", "bytea", -1),
    TableColumn("date", "date", -1), TableColumn("time", "time", -1), TableColumn("timestamp", "timestamp", -1),
    TableColumn("timestamp(3)", "timestamp", 3), TableColumn("timestamptz", "timestamptz", -1),
    TableColumn("timestamptz(3)", "timestamptz", 3), TableColumn("interval", "interval", -1),
    TableColumn("json", "json", -1), TableColumn("uuid", "uuid", -1), TableColumn("money", "money", -1),
)  # fmt: skip
DELTA: tuple[Kind, ...] = (
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal(10,2)", "decimal(38,0)",
    "decimal(38,18)", "decimal(38,38)", "string", "binary", "date", "timestamp", "timestamp_ntz",
    ("array", "integer"), ("array", "long"), ("map", "string", "integer"),
    ("struct", (("a", "integer"), ("b", "string"))),
)  # fmt: skip
ICEBERG: tuple[Kind, ...] = (*(kind for kind in DELTA if kind not in ("byte", "short")), "time")


def tables() -> dict[str, str]:
    """The generated part between each pair of marks, by the name in the marks."""
    makes = {kind: "yes" if lake_has(kind) else "refused" for kind in KINDS}
    return {
        "postgres": table(("Spark", "as it is", "if each value fits"), map(_postgres_row, KINDS)),
        "delta": table(
            ("Spark", "a table that the commit makes", "a column that exists"),
            ((_name(kind), makes[kind], _taking(kind, delta_takes, DELTA)) for kind in KINDS),
        ),
        "iceberg": table(
            ("Spark", "a column that exists", "a table that a vertex makes (`table=`)"),
            (
                (_name(kind), _taking(kind, iceberg_takes, ICEBERG), "yes" if iceberg_has(kind) else "refused")
                for kind in KINDS
            ),
        ),
    }


def _postgres_row(kind: Kind) -> Sequence[str]:
    fits = [(column.sql, fit(kind, column)) for column in POSTGRES]
    as_it_is = [name for name, found in fits if found is not None and found.unlike is None]
    by_value = [name for name, found in fits if found is not None and found.unlike is not None]
    is_each = len(as_it_is) + len(by_value) == len(POSTGRES)
    return _name(kind), _names(as_it_is, is_each and not by_value), _names(by_value, is_each, "each other one")


def _taking(kind: Kind, takes: Callable[[Kind, Kind], bool], targets: Sequence[Kind]) -> str:
    taking = [sql_name(target) for target in targets if takes(kind, target)]
    return _names(taking, len(taking) == len(targets))


def _name(kind: Kind) -> str:
    return f"`{sql_name(kind)}`"


def _names(names: Sequence[str], is_each: bool, each: str = "each") -> str:
    return each if is_each and names else ", ".join(f"`{name}`" for name in names) or "none"


def main() -> int:
    """Draw the tables into the page."""
    PAGE.write_text(drawn_into(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
