"""Whether a function's code appends to something. Run a second time, it writes a second time (fault 80).

What a vertex returns, recovery writes: each attempt in a place of its own, and one of them counts. What the code writes
by itself is outside of that, and an attempt that has written and then dies is run again.

Looks at compiled code, which costs microseconds when a DAG is parsed, and at this code alone: not at the helpers that
it calls, not at what a ``foreach`` or a web service does. Those can only be declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from airflow_recovery.job.sql_appends import how_sql_appends

_BOTH_SIDES = re.compile(r"\b\w+\.(\w+)\b\W*[-+*/%|][^,]*\b\w+\.\1\b")
_TAKE_SQL = frozenset({"sql", "execute", "executemany", "copy_expert", "copy"})
_WRITERS = (
    "write", "to_sql", "to_delta", "to_iceberg", "to_table", "to_parquet", "to_orc", "to_csv", "to_json", "to_spark_io",
    "to_gbq", "write_deltalake", "write_delta", "write_iceberg", "write_database",
)  # fmt: skip
"""What writes in a mode that a text names: Spark's `DataFrame.write`, and functions of pandas, pyspark.pandas, polars
and delta-rs."""
_WORTH_COMPILING = re.compile(rb"append|insert|merge|update|load\s+data|copy\s+into|writeStream", re.IGNORECASE)


def how_it_appends(code: CodeType) -> str | None:
    """Which call in ``code``, or in a function inside it, appends; `None` where none is seen."""
    names: set[str] = set()
    texts: set[str] = set()
    for block in _nested(code):
        names.update(block.co_names)
        texts.update(_texts(block))
    words = {text.lower() for text in texts}
    writer = next((name for name in _WRITERS if name in names), None)
    if writer is not None and "append" in words:
        return f'{writer} in mode "append"'
    if "writeTo" in names and "append" in names:
        return "writeTo(...).append()"
    if "insertInto" in names and "overwrite" not in words:
        return "insertInto(...)"
    if "writeStream" in names and not words & {"checkpointlocation", "complete"}:
        return "writeStream without a checkpointLocation"
    if {"whenMatchedUpdate", "mergeInto"} & names and any(_BOTH_SIDES.search(text) for text in texts):
        return "a merge that adds to what is there"
    return how_sql_appends(texts) if names & _TAKE_SQL else None


def how_application_appends(path: Path) -> str | None:
    """As `how_it_appends`, for a Python file; `None` where it is not Python, or can't be read or compiled here."""
    if path.suffix != ".py":
        return None
    try:
        source = path.read_bytes()
        if not _WORTH_COMPILING.search(source):
            return None
        return how_it_appends(compile(source, str(path), "exec", dont_inherit=True))
    except (OSError, SyntaxError, ValueError):
        return None


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _texts(code: CodeType) -> Iterator[str]:
    """The texts in the code, among them the names of keyword arguments."""
    for constant in code.co_consts:
        inner = constant if isinstance(constant, tuple) else (constant,)
        yield from (text for text in inner if isinstance(text, str))
