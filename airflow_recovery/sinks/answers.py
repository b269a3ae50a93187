"""What an error of delta-rs or pyiceberg means for a commit: the one place that reads their classes and texts.

docs/target-errors.md lists them, and PostgreSQL's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum

from airflow_recovery.errors import SinkUnavailable, SinkUnreadable, kind_of
from airflow_recovery.sinks.committer import CommitToken
from airflow_recovery.store import s3_errors


class Answer(Enum):
    """What is known after an error of a target's library."""

    CONFLICT = "conflict"
    """Another process has committed since the table was read. Nothing was committed: read it and try again."""
    REFUSED = "refused"
    """The table will refuse the same commit again. Nothing was committed."""
    UNREADABLE = "unreadable"
    """No retry helps, and whether something was committed is not known: the table, or the way to it, must be mended."""
    UNKNOWN = "unknown"
    """A later retry may succeed. It is not known whether something was committed."""


_CASE = " (upper and lower case count in the names of columns)"
_DELTA_CONFLICT = re.compile(
    r"Failed to commit transaction|Tried committing existing table version|Commit failed: a concurrent|"
    r"Metadata changed since last commit|Concurrent transaction failed|protocol changed|table already exists"
)
_DELTA_FEATURES = re.compile(
    r"Unsupported table features required: \[(.*)\]|Feature '([^']+)' is not supported|"
    r"(?:Unsupported minimum|does not support) ((?:reader|writer) version \d+)"
)
_DELTA_CATALOG = "Max catalog version"
_DELTA_DAMAGED = re.compile(
    r"Expected contiguous commit files|No (?:table metadata|protocol)\b.* found in delta log|"
    r"No table metadata found|No protocol found|Json error|Invalid Checkpoint|Invalid protocol action|"
    r"Arrow error|Parquet error|Schema error|Error parsing|missing field|Invalid table version"
)
_TRANSFER = re.compile(r"Generic \w+ error|HTTP error|error sending request|timed out|[Cc]onnection (?:reset|closed)")
"""The store's own error, which delta-rs may put inside one of its own."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_DENIED = re.compile(r"lacked the necessary privileges|lacked valid authentication|ACCESS_DENIED|access denied", re.I)
_HTTP = re.compile(r"\b([345]\d\d) [A-Z][a-z]+(?: [A-Z][a-z]+)*")
_CODE = re.compile(r"<Code>(\w[\w.]*)</Code>(?:\s*<Message>([^<]*))?")


def no_answer(
    token: CommitToken,
    kind: str,
    uri: str,
    library: str,
    error: Exception | None,
    meaning: Callable[[Exception], tuple[Answer, str]],
) -> SinkUnavailable | SinkUnreadable:
    """The error after which it is not known whether a lake table has the commit of ``token``.

    ``kind`` and ``uri``: of the table. ``error``: what ``library`` has raised, and what that means.
    """
    answer, why = (Answer.UNKNOWN, "") if error is None else meaning(error)
    if answer in (Answer.UNREADABLE, Answer.REFUSED):
        return SinkUnreadable(
            f"{token.text}: the {kind} table {uri} can't be used: {why}. No retry helps. Whether it was committed, the "
            "next try finds by the token: nothing is committed twice."
        )
    return SinkUnavailable(
        f"{token.text}: {library} said of {uri}: {type(error).__name__}: {error}. Whether it was committed, the next "
        "try finds by the token: nothing is committed twice.",
        code="target-no-answer",
    )


def of_delta(error: Exception) -> tuple[Answer, str]:
    """The answer for an error of delta-rs, and why, without the rows that delta-rs quotes."""
    import deltalake.exceptions

    text = _ANSI.sub("", str(error))
    features = refused_features(error)
    if features:
        return Answer.REFUSED, delta_features(features)
    if isinstance(error, (deltalake.exceptions.SchemaMismatchError, deltalake.exceptions.DeltaProtocolError)):
        return Answer.REFUSED, text + (_CASE if "not found in schema" in text else "")
    if isinstance(error, deltalake.exceptions.CommitFailedError) and "append-only" in text:
        return Answer.REFUSED, text
    if isinstance(error, deltalake.exceptions.DeltaError) and "failed validation check" in text:
        broken = text.partition("Preview of invalid data")[0].rpartition(":")[2].strip().rstrip(".")
        return Answer.REFUSED, f"{broken} (a constraint of the table, or a column that must not be null)"
    if text.startswith("Cast error"):
        # A value of one type where the table has another: delta-rs quotes it.
        return Answer.REFUSED, "a column has another type there, and not all values fit"
    if "Error during planning" in text:
        return Answer.REFUSED, f"delta-rs could not evaluate a constraint or a generated column of the table: {text}"
    if isinstance(error, deltalake.exceptions.DeltaError) and _DELTA_CONFLICT.search(text):
        return Answer.CONFLICT, text
    is_transfer = _TRANSFER.search(text) is not None
    if isinstance(error, deltalake.exceptions.DeltaError) and _DELTA_DAMAGED.search(text) and not is_transfer:
        return Answer.UNREADABLE, f"its log is damaged: {text.partition(_LINE)[0]}. {_DELTA_CURE}"
    return of_store(text)


def refused_features(error: Exception) -> list[str]:
    """The table features that delta-rs has refused, by its own names for them."""
    text = str(error)
    found = _DELTA_FEATURES.search(text)
    if found is None:
        return ["catalogManaged"] if _DELTA_CATALOG in text else []
    names = [name.strip() for name in (found[1] or found[2] or found[3]).split(",")]
    return [re.sub(r'Unknown\("(.*)"\)', r"\1", name) for name in names]


_LINE = "\n"
_DELTA_CURE = (
    "Find the file of _delta_log that is missing or was not written by Delta. Bring it back from a backup or an "
    "earlier version of the object, or create the table again"
)


def delta_features(names: list[str]) -> str:
    """Which features of a Delta table delta-rs can't write, and what to do."""
    import deltalake

    those = ", ".join(names)
    return (
        f"delta-rs {deltalake.__version__} can't commit to a table that needs {those}. Remove the feature "
        f"with Spark, if Delta can remove it (ALTER TABLE ... DROP FEATURE ...), name a table without it, or have "
        "Spark write the table (table= of a vertex)"
    )


def of_store(text: str) -> tuple[Answer, str]:
    """The answer for an error whose text holds what a store has answered by HTTP, if one did."""
    text = _ANSI.sub("", text)
    code, status = _CODE.search(text), _HTTP.search(text)
    if code is None and status is None and not _DENIED.search(text):
        return Answer.UNKNOWN, text
    number = int(status[1]) if status else 403 if _DENIED.search(text) else 0
    found = s3_errors.from_code(
        code[1] if code else "", number, before="", text=code[2] or "no text" if code else text.partition("\n")[0]
    )
    return (Answer.UNREADABLE, str(found).strip()) if kind_of(found).is_final else (Answer.UNKNOWN, text)


_ICEBERG_MISSING = ("NotInstalledError", "NoSuchPropertyException")
_ICEBERG_REFUSED = (
    "BadRequestError", "NoSuchIcebergTableError", "NoSuchNamespaceError", "NoSuchTableError", "ResolveError",
)  # fmt: skip
_ICEBERG_DENIED = ("ForbiddenError", "OAuthError", "UnauthorizedError")
_SQL_FINAL = re.compile(
    r"no such table|permission denied|password authentication failed|no pg_hba.conf entry|does not exist|"
    r"attempt to write a readonly database",
)
_NO_REPLY = "Did not receive a response"


def of_iceberg(error: Exception) -> tuple[Answer, str]:
    """The answer for an error of pyiceberg, of its catalog or of the files, and why."""
    from pyiceberg import exceptions

    text, name = f"{type(error).__name__}: {error}", type(error).__name__
    if isinstance(error, exceptions.CommitFailedException):
        return Answer.CONFLICT, text
    if isinstance(error, ImportError) or name in _ICEBERG_MISSING:
        return Answer.UNREADABLE, f"{text}. Install what the catalog needs where the task runs, or correct the catalog"
    if name in _ICEBERG_REFUSED:
        return Answer.REFUSED, text
    if name in _ICEBERG_DENIED or isinstance(error, PermissionError):
        return Answer.UNREADABLE, f"{text}. Check the catalog's credentials and rights"
    if isinstance(error, (exceptions.ValidationError, FileNotFoundError)):
        return Answer.UNREADABLE, f"its metadata is damaged: {text}. {_ICEBERG_CURE}"
    if isinstance(error, NotImplementedError):
        return Answer.REFUSED, f"{text}. Have Spark write the table (table= of a vertex), or name another table"
    if _is_reply(error):
        return Answer.UNKNOWN, text
    if isinstance(error, (ValueError, TypeError)):
        return Answer.REFUSED, str(error) + _required(str(error)) + (_CASE if "more columns" in str(error) else "")
    if type(error).__module__.startswith("sqlalchemy"):
        is_final = name in ("ArgumentError", "NoSuchModuleError", "ProgrammingError") or _SQL_FINAL.search(text)
        return (Answer.UNREADABLE if is_final else Answer.UNKNOWN), text
    code, message = s3_errors.answered(error)
    if code:
        text = f"<Code>{code.removesuffix('Exception')}</Code><Message>{message}"
    return of_store(text)


_ICEBERG_CURE = (
    "Find the file of the table that is missing or was not written by Iceberg. Bring it back, register the table with "
    "an earlier metadata file, or create the table again"
)


def _is_reply(error: Exception) -> bool:
    """Return whether the catalog's reply could not be read: missing, cut short, or sent by a proxy.

    The commit may have succeeded anyway.
    """
    from pydantic import ValidationError

    return isinstance(error, (json.JSONDecodeError, UnicodeError, ValidationError)) or _NO_REPLY in str(error)


def _required(text: str) -> str:
    """What to do if a column of the table is required and the result's is not."""
    wrong = re.search(r"required \w+[^\n]*optional", text)
    if wrong is None:
        return ""
    return (
        ". The table's column is required, but the result's column is nullable in Spark. Use "
        "coalesce(column, lit(...)) in the function that returns the result, or make the table's column optional "
        "(ALTER TABLE ... ALTER COLUMN ... DROP NOT NULL)"
    )
