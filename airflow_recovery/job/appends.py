"""Whether a function's code appends to something. Run a second time, it writes a second time (fault 80).

What a vertex returns, recovery writes: each attempt in a place of its own, and one of them counts. What the code writes
by itself is outside of that, and an attempt that has written and then dies is run again.

Looks at compiled code, which costs microseconds when a DAG is parsed, and at this code alone: not at the helpers that
it calls, not at what a ``foreach`` or a web service does. Those can only be declared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType

_FLAGS = re.IGNORECASE | re.DOTALL
_COMMENT = re.compile(r"--[^\n]*(?:\n|$)|/\*.*?\*/", re.DOTALL)
# `INSERT INTO t REPLACE WHERE ...` overwrites. Spark knows common tables, and a FROM, before it.
_INSERT = re.compile(r"\s*(?:(?:with|from)\b.*\b)?insert\s+into\b(?!.*\breplace\b)", _FLAGS)
_LOAD = re.compile(r"\s*load\s+data\b(?!.*\boverwrite\b)", _FLAGS)
_CHANGES_ROWS = re.compile(r"\s*(?:merge\s+into|update)\b", _FLAGS)
_ALIAS = re.compile(r"\s*(?:merge\s+into|update)\s+([\w.`]+)(?:\s+(?:as\s+)?(?!using\b|set\b)(\w+))?", _FLAGS)
_SET = re.compile(r"\bset\b(.*?)(?=\bwhen\b|\bwhere\b|$)", _FLAGS)
_ASSIGNMENT = re.compile(r"([\w.`]+)\s*=\s*((?:[^,()]|\([^()]*(?:\([^()]*\)[^()]*)*\))+)")
_COMBINES = re.compile(r"[-+*/%]|\|\||\bconcat\w*\b|\barray_\w+\b", re.IGNORECASE)
_BOTH_SIDES = re.compile(r"\b\w+\.(\w+)\b\W*[-+*/%|][^,]*\b\w+\.\1\b")
_WORTH_COMPILING = re.compile(rb"append|insert|merge|update|load data|writeStream", re.IGNORECASE)


def how_it_appends(code: CodeType) -> str | None:
    """Which call in ``code``, or in a function inside it, appends; `None` where none is seen."""
    names: set[str] = set()
    texts: set[str] = set()
    for block in _nested(code):
        names.update(block.co_names)
        texts.update(_texts(block))
    words = {text.lower() for text in texts}
    if "write" in names and "append" in words:
        return 'write in mode "append"'
    if "writeTo" in names and "append" in names:
        return "writeTo(...).append()"
    if "insertInto" in names and "overwrite" not in words:
        return "insertInto(...)"
    if "writeStream" in names and not words & {"checkpointlocation", "complete"}:
        return "writeStream without a checkpointLocation"
    if {"whenMatchedUpdate", "mergeInto"} & names and any(_BOTH_SIDES.search(text) for text in texts):
        return "a merge that adds to what is there"
    return _how_sql_appends(texts) if "sql" in names else None


def _how_sql_appends(texts: Iterable[str]) -> str | None:
    statements = [_COMMENT.sub(" ", text) for text in texts]
    if any(map(_INSERT.match, statements)):
        return "INSERT INTO"
    if any(map(_LOAD.match, statements)):
        return "LOAD DATA"
    changing = [statement for statement in statements if _CHANGES_ROWS.match(statement)]
    # An f-string is in pieces: the names of its table may be in another one than what is set.
    if changing and any(_adds_to_itself(changing[0], piece) for piece in statements):
        return "MERGE or UPDATE that adds to what is there"
    return None


def _adds_to_itself(statement: str, piece: str) -> bool:
    """Whether ``piece`` sets a column to what it was before, combined with something: ``n = t.n + s.n``."""
    named = _ALIAS.match(statement)
    targets = {name.strip("`").rpartition(".")[2].lower() for name in (named.groups() if named else ()) if name}
    for assigned in _SET.findall(piece):
        for column, value in _ASSIGNMENT.findall(assigned):
            qualifier, _, name = column.replace("`", "").lower().rpartition(".")
            read = re.findall(rf"(?:(\w+)\.)?\b{re.escape(name)}\b(?!\s*\()", value.replace("`", "").lower())
            is_itself = any(not one or one == qualifier or one in targets for one in read) or len(set(read)) > 1
            if is_itself and _COMBINES.search(value):
                return True
    return False


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
