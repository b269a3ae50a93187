"""What a failed Spark application says of itself, for a machine.

Classified by Spark's error condition and SQLSTATE first, then by the Java exception chain (classic sessions only), then
by the Python type. A classification never changes another region by itself: a missing input only triggers a probe.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow_recovery.errors import Failure

MAX_MESSAGE_CHARACTERS = 2000
MAX_CHAIN = 12

_SYNTAX_OR_ACCESS_RULE = "42"
"""SQLSTATE class: the query itself is wrong (syntax, missing table or column, wrong type)."""

_MISSING_CONDITIONS = ("FAILED_READ_FILE.FILE_NOT_EXIST", "PATH_NOT_FOUND")
_MISSING_TYPES = ("FileNotFoundException", "FileNotFoundError", "PartitionMissing")

_USER_TYPES = frozenset(
    {
        "AttributeError",
        "ImportError",
        "IndentationError",
        "JobDefinitionError",
        "LossBudgetExceeded",
        "ModuleNotFoundError",
        "NameError",
        "NotImplementedError",
        "ParseException",
        "PySparkAttributeError",
        "PySparkImportError",
        "PySparkNotImplementedError",
        "PySparkTypeError",
        "StoreUnsuitable",
        "SyntaxError",
        "TabError",
        "TypeError",
        "UnboundLocalError",
        "UserCodeError",
    }
)


def describe(error: BaseException, *, vertex: str | None = None) -> Failure:
    """``error`` as a record. Call it before the session is stopped: classic exceptions ask the JVM.

    ``vertex`` is the one that was being called or written. The chain holds ``class: message`` of each Java cause, the
    outermost first; it is empty over Spark Connect and for Python errors.
    """
    return Failure(
        type=type(error).__name__,
        message=_message(error),
        condition=_ask(error, "getCondition"),
        sql_state=_ask(error, "getSqlState"),
        chain=_chain(error),
        vertex=vertex,
    )


def is_user_error(failure: Failure) -> bool:
    """True where the same code on the same data will fail again, so that a retry only costs time (fault 78).

    SQLSTATE class 42 (but not a missing path: it may be a lost input), or a Python error that names a mistake in the
    code, a budget that the next try would exceed as well, or a store that is not fit for what is kept in it. A
    `RuntimeError` or a `ValueError` is not: it may depend on the moment. What fails inside a task of Spark (a UDF)
    reaches the driver as Spark's own exception and is not either.
    """
    if is_missing_input(failure):
        return False
    if failure.sql_state is not None and failure.sql_state.startswith(_SYNTAX_OR_ACCESS_RULE):
        return True
    return failure.type in _USER_TYPES


def is_missing_input(failure: Failure) -> bool:
    """True where a file that was read may be gone. A hint: only a successful listing without the key proves it."""
    if failure.condition in _MISSING_CONDITIONS or failure.type in _MISSING_TYPES:
        return True
    told = (failure.message, *failure.chain)
    return any(f"[{condition}]" in text for condition in _MISSING_CONDITIONS for text in told) or any(
        f"{name}:" in text for name in _MISSING_TYPES for text in failure.chain
    )


def silence_query_loggers() -> None:
    """Keep pyspark from logging a whole JVM stack, as one line of JSON, for each error of a query.

    The exception says the same, and is in the task log anyway.
    """
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _message(error: BaseException) -> str:
    # str() of a classic exception ends with the whole JVM stack, which the log holds anyway.
    told = str(getattr(error, "_desc", None) or error)
    return told.split("\n\nJVM stacktrace:")[0].strip()[:MAX_MESSAGE_CHARACTERS]


def _ask(error: BaseException, question: str) -> str | None:
    ask = getattr(error, question, None)
    if ask is None:
        return None
    try:
        answer = ask()
    except Exception:  # the JVM that would answer may be gone: then it is not known
        return None
    return None if answer is None else str(answer)


def _chain(error: BaseException) -> tuple[str, ...]:
    # `_origin` is a Java throwable or a Py4JJavaError that holds one. getattr on a Java object never fails, so that
    # only the type tells them apart.
    found: Any = error if type(error).__name__ == "Py4JJavaError" else getattr(error, "_origin", None)
    if type(found).__name__ == "Py4JJavaError":
        found = found.java_exception
    chain: list[str] = []
    try:
        while found is not None and len(chain) < MAX_CHAIN:
            message = (found.getMessage() or "-").strip()
            chain.append(f"{found.getClass().getName()}: {message.splitlines()[0][:300] if message else '-'}")
            found = found.getCause()
    except Exception:  # as above: a dead JVM ends the chain
        return tuple(chain)
    return tuple(chain)
