"""The types of Spark's columns, read from the JSON in which Spark writes them, also into the footer of a Parquet file.

Parquet has no interval: there it is a plain number, and only Spark's JSON tells what the number means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

FOOTER = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of the JSON in the footer of a Parquet file."""

CALENDARS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys in the footer of a Parquet file whose dates, or moments as INT96, are of Spark's LEGACY calendar."""
_VERSION = b"org.apache.spark.version"

Kind = str | tuple[Any, ...]
"""A type: its name in Spark's JSON, or a tuple of ``array`` and the type of its items, of ``map`` and two types, or of
``struct`` and pairs of a name and a type.

The name of a time has no precision, since a Parquet file of Spark always has microseconds.
"""

_SQL = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 19}
"""Types of whole numbers, from the smallest on, with the most digits of each."""
_EXACT_IN = {"float": ("byte", "short"), "double": ("byte", "short", "integer", "float")}
"""Types whose every value a floating point number holds."""
_PLAIN = {"boolean", *_WHOLE, "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz"}


def columns_of(text: str) -> dict[str, Kind]:
    """The columns of a schema in Spark's JSON, in their order."""
    return {field["name"]: kind_of(field["type"]) for field in json.loads(text)["fields"]}


def kind_of(given: Any) -> Kind:
    """A type of Spark's JSON. A user-defined type is the type in which it is stored."""
    if isinstance(given, str):
        return "time" if re.fullmatch(r"time\(\d\)", given) else given
    if given["type"] == "array":
        return "array", kind_of(given["elementType"])
    if given["type"] == "map":
        return "map", kind_of(given["keyType"]), kind_of(given["valueType"])
    if given["type"] == "struct":
        return "struct", tuple((field["name"], kind_of(field["type"])) for field in given["fields"])
    return kind_of(given["sqlType"])


def is_legacy(footer: Mapping[bytes, bytes]) -> bool:
    """Whether Spark has written dates as Spark 2 did: in the Julian calendar, until October 1582."""
    if any(key in footer for key in CALENDARS):
        return True
    if FOOTER not in footer:
        return False
    version = footer.get(_VERSION, b"2.4").decode().split(".")
    return (int(version[0]), int(version[1])) < (3, 1)


def sql_name(kind: Kind) -> str:
    """A type as Spark's SQL writes it."""
    if isinstance(kind, str):
        return _SQL.get(kind, kind)
    name, *items = kind
    if name == "struct":
        return f"struct<{', '.join(f'{member}: {sql_name(item)}' for member, item in items[0])}>"
    return f"{name}<{', '.join(map(sql_name, items))}>"


def leaves(kind: Kind) -> Sequence[str]:
    """The types of which a nested type is made."""
    if isinstance(kind, str):
        return [kind]
    name, *items = kind
    return [leaf for item in ([each for _, each in items[0]] if name == "struct" else items) for leaf in leaves(item)]


def is_interval(kind: Kind) -> bool:
    """Whether it is a year-month or a day-time interval."""
    return isinstance(kind, str) and kind.startswith("interval")


def is_of_months(kind: Kind) -> bool:
    """Whether it is a year-month interval, whose values are months. Those of others are microseconds."""
    return isinstance(kind, str) and re.fullmatch(r"interval (year|month)( to month)?", kind) is not None


def decimal_digits(kind: Kind) -> tuple[int, int] | None:
    """How many digits a decimal has before its point, and after it; `None`: it is no decimal."""
    match = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind) if isinstance(kind, str) else None
    return None if match is None else (int(match[1]) - int(match[2]), int(match[2]))


def lake_has(kind: Kind) -> bool:
    """Whether tables of Delta and Iceberg both have a type with the same values."""
    return all(leaf in _PLAIN or decimal_digits(leaf) is not None for leaf in leaves(kind))


def delta_takes(kind: Kind, target: Kind) -> bool:
    """Whether a column of type ``target`` of a Delta table holds every value of ``kind`` as it is."""
    if kind == "void" or (kind, target) == ("date", "timestamp_ntz"):
        return True
    digits = decimal_digits(target)
    if kind in _WHOLE and digits is not None:
        return _WHOLE[kind] <= digits[0]
    return kind in _EXACT_IN.get(str(target), ()) or _takes(kind, target, lake_has)


def iceberg_takes(kind: Kind, target: Kind) -> bool:
    """Whether a column of type ``target`` of an Iceberg table holds every value of ``kind`` as it is."""
    return _takes(kind, target, lambda each: lake_has(each) or each == "time")


def iceberg_has(kind: Kind) -> bool:
    """Whether a table of Iceberg has a type with the same values."""
    return iceberg_takes(kind, kind)


def in_order_of_names(kind: Kind) -> Kind:
    """The type with the members of each struct in the order of their names, for a target that finds them by name."""
    if isinstance(kind, str):
        return kind
    name, *items = kind
    if name == "struct":
        return name, tuple(sorted((member, in_order_of_names(item)) for member, item in items[0]))
    return name, *map(in_order_of_names, items)


def _takes(kind: Kind, target: Kind, has: Any) -> bool:
    """The same type, or one that is wider, at any depth. The members of a struct must be the same, in their order."""
    if isinstance(kind, tuple) and isinstance(target, tuple) and kind[0] == target[0]:
        if kind[0] != "struct":
            return all(_takes(mine, its, has) for mine, its in zip(kind[1:], target[1:], strict=True))
        mine, its = kind[1], target[1]
        return [name for name, _ in mine] == [name for name, _ in its] and all(
            _takes(one, other, has) for (_, one), (_, other) in zip(mine, its, strict=True)
        )
    if kind == target:
        return bool(has(kind))
    if kind in _WHOLE and target in _WHOLE:
        return _WHOLE[kind] < _WHOLE[target]
    digits, room = decimal_digits(kind), decimal_digits(target)
    if digits is not None and room is not None:
        return digits[0] <= room[0] and digits[1] <= room[1]
    return (kind, target) == ("float", "double")


def same_but_for_case(names: Sequence[str]) -> list[str]:
    """The names that differ from another one by case alone. Spark and the tables of lakes take them for one."""
    folded = [name.lower() for name in names]
    return [name for name in names if folded.count(name.lower()) > 1]
