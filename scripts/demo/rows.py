"""Tables as sorted rows, so that two of them can be compared row for row whatever file or order they came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Rows = tuple[str, ...]
"""Each row as one text of its columns by name, sorted. Equal floats have equal texts; a missing value is ``None``."""


def rows_of(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows of a table, in the one order that they have."""
    return tuple(sorted(repr(sorted(row.items())) for row in rows))


def difference(expected: Rows, found: Rows) -> str | None:
    """`None` where the tables are equal; else how many rows differ, and one of each side."""
    if expected == found:
        return None
    missing, surplus = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    return (
        f"{len(expected)} rows expected, {len(found)} found; missing {len(missing)}: {missing[:1]}; "
        f"not expected {len(surplus)}: {surplus[:1]}"
    )
