"""What a failed Spark application says of itself, for a machine.

Classified by Spark's error condition and SQLSTATE first, then by the Java exception chain (classic sessions only), then
by the Python type. A classification never changes another region by itself: a missing input only triggers a probe.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from airflow_recovery.errors import CODE_LABEL, Failure, RecoveryError

MAX_MESSAGE_CHARACTERS = 2000
MAX_CHAIN = 12
MAX_CAUSE_CHARACTERS = 500

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

_TRACEBACK = "Traceback (most recent call last):"
_TRACEBACK_OF_GROUP = "  + Exception Group Traceback (most recent call last):"
_RAISED = re.compile(r"(?:  \| )?([A-Za-z_](?:[\w.]|<locals>)*)(?:: (.*))?$")
_IN_FILE = '  File "'
_NOT_COMPILED = re.compile(r"(SyntaxError|IndentationError|TabError): (.*)")
"""Python shows no traceback if it can't compile the program itself."""
_IN_THREAD = "Exception in thread "
_ELSEWHERE = (_IN_THREAD, "Exception ignored ")
"""How the line before a traceback begins whose exception has not ended the program."""
_IN_MAIN = re.compile(r'Exception in thread "main" ([\w.$]+)(?:: (.*))?$')
_OF_A_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d |\{\"ts\"")
"""A line of Spark's log, or of pyspark's."""

NOT_RETRIED = (("class", "user code"), ("recoverable", "no"))
"""The labels by which a record says that the code is wrong, where its type and its SQLSTATE do not show it."""


def describe(error: BaseException, *, vertex: str | None = None) -> Failure:
    """``error`` as a record. Call it before the session is stopped: classic exceptions ask the JVM.

    ``vertex`` is the one that was being called or written. The chain holds ``class: message`` of each Java cause, the
    outermost first; it is empty over Spark Connect and for Python errors.

    Where ``error`` was raised ``from`` another one, that is asked too, and so on: the first of them that says whether
    the code is wrong decides. Where that is not ``error`` itself, it is named in the message, and the record has the
    labels `NOT_RETRIED`. What was being handled when ``error`` was raised (``__context__``) is not asked: a fallback
    that fails after an `ImportError` did not fail because of it.
    """
    failure = _record(error, vertex)
    for cause in _causes(error):
        answer = _is_code_wrong(cause)
        if answer is None and not isinstance(cause, RecoveryError):  # ours speak for themselves
            continue
        if answer and not is_user_error(failure):
            caused_by = "" if cause is error else f" (caused by {type(cause).__name__}: {_message(cause)})"
            failure = replace(
                failure,
                message=(failure.message + caused_by)[:MAX_MESSAGE_CHARACTERS],
                labels=(*failure.labels, *NOT_RETRIED),
            )
        break
    return failure


def _causes(error: BaseException) -> Iterator[BaseException]:
    """``error``, what it was raised from, what that was raised from, and so on."""
    cause: BaseException | None = error
    for _ in range(MAX_CHAIN):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _is_code_wrong(error: BaseException) -> bool | None:
    """Whether the same code would fail again, by this exception and its Java causes alone. `None`: it does not say."""
    failure = _record(error)
    if is_missing_input(failure):
        return False
    is_wrong = (
        is_user_error(failure)
        or any(base.__name__ in _USER_TYPES for base in type(error).__mro__)
        or any(_is_of_the_query(_ask(cause, "getSqlState")) for cause in _java_causes(error))
    )
    return True if is_wrong else None


def _record(error: BaseException, vertex: str | None = None) -> Failure:
    return Failure(
        type=type(error).__name__,
        message=_message(error),
        condition=_ask(error, "getCondition" if hasattr(error, "getCondition") else "getErrorClass"),  # of Spark 3.5
        sql_state=_ask(error, "getSqlState"),
        chain=_chain(error),
        vertex=vertex,
        labels=_named_by(error),
    )


def _named_by(error: BaseException) -> tuple[tuple[str, str], ...]:
    """The fields and the code of an error of ours."""
    if not isinstance(error, RecoveryError):
        return ()
    named = {name: str(value)[:MAX_CAUSE_CHARACTERS] for name, value in error.fields.items()}
    return tuple({**named, CODE_LABEL: error.code}.items())


def raised_in(output: Iterable[str]) -> Failure | None:
    """The exception that has ended an application, from the end of its output; `None` if that shows none.

    ``output`` has no lines of Spark's log below ERROR and no Java stack frames. An exception of Python follows the
    last traceback; one of Java is that of the main thread. Both may have several lines, and name Java causes. The
    exception of another thread of Python counts if there is no other one.
    """
    lines, of_thread = list(output), None
    for at in range(len(lines) - 1, -1, -1):
        if java := _IN_MAIN.match(lines[at]):
            return _raised(java[1], java[2] or "", lines[at + 1 :])
        if not lines[at].startswith((_TRACEBACK, _TRACEBACK_OF_GROUP)):
            continue
        end = next((end for end in range(at + 1, len(lines)) if _RAISED.match(lines[end])), None)
        found = None
        if end is not None and (python := _RAISED.match(lines[end])):
            found = _raised(python[1], python[2] or "", lines[end + 1 :])
        if not at or not lines[at - 1].startswith(_ELSEWHERE):
            return found
        if lines[at - 1].startswith(_IN_THREAD):
            of_thread = of_thread or found
    return of_thread or _not_compiled(lines)


def _not_compiled(lines: list[str]) -> Failure | None:
    """The error of a program that Python could not compile, which has no traceback."""
    for at, line in enumerate(lines):
        found = _NOT_COMPILED.match(line)
        if found and any(before.startswith(_IN_FILE) for before in lines[max(0, at - 3) : at]):
            return _raised(found[1], found[2], lines[at + 1 :])
    return None


def _raised(name: str, first: str, following: list[str]) -> Failure:
    ends = (at for at, line in enumerate(following) if _OF_A_LOG.match(line))
    more = following[: next(ends, len(following))]
    causes = [cause for line in more if (cause := re.match(r"(?:Caused by|): ([\w.$]+(?:Exception|Error)\b.*)", line))]
    message = "\n".join([first, *more]).strip()
    condition, state = re.match(r"\[([A-Z_.]+)\]", message), re.search(r"\bSQLSTATE: (\w{5})\b", message)
    return Failure(
        type=name.rpartition(".")[2],
        message=message[:MAX_MESSAGE_CHARACTERS],
        condition=condition and condition[1],
        sql_state=state and state[1],
        chain=tuple(cause[1][:MAX_CAUSE_CHARACTERS] for cause in causes[:MAX_CHAIN]),
    )


def is_user_error(failure: Failure) -> bool:
    """True where the same code on the same data will fail again, so that a retry only costs time (fault 78).

    Its labels say so (`describe`); or it has an SQLSTATE of class 42 (but not a missing path: it may be a lost input);
    or it is a Python error that names a mistake in the code, a budget that the next try would exceed as well, or a
    store that is not fit for what is kept in it. A `RuntimeError` or a `ValueError` is not: it may depend on the
    moment. What fails inside a task of Spark (a UDF) reaches the driver as Spark's own exception and is not either.
    """
    if set(NOT_RETRIED) <= set(failure.labels):
        return True
    if is_missing_input(failure):
        return False
    return _is_of_the_query(failure.sql_state) or failure.type in _USER_TYPES


def _is_of_the_query(sql_state: str | None) -> bool:
    return sql_state is not None and sql_state.startswith(_SYNTAX_OR_ACCESS_RULE)


def is_missing_input(failure: Failure) -> bool:
    """True where a file that was read may be gone. A hint: only a successful listing without the key proves it."""
    if failure.condition in _MISSING_CONDITIONS or failure.type in _MISSING_TYPES:
        return True
    messages = (failure.message, *failure.chain)
    return any(f"[{condition}]" in text for condition in _MISSING_CONDITIONS for text in messages) or any(
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
    message = str(getattr(error, "_desc", None) or error)
    return message.split("\n\nJVM stacktrace:")[0].strip()[:MAX_MESSAGE_CHARACTERS]


def _ask(error: Any, question: str) -> str | None:
    ask = getattr(error, question, None)
    if ask is None:
        return None
    try:
        answer = ask()
    except Exception:  # the JVM that would answer may be gone, or this exception of Java's is none of Spark's
        return None
    return None if answer is None else str(answer)


def _chain(error: BaseException) -> tuple[str, ...]:
    chain: list[str] = []
    try:
        for cause in _java_causes(error):
            message = (cause.getMessage() or "-").strip()
            first_line = message.splitlines()[0][:MAX_CAUSE_CHARACTERS] if message else "-"
            chain.append(f"{cause.getClass().getName()}: {first_line}")
    except Exception:  # as above: a dead JVM ends the chain
        return tuple(chain)
    return tuple(chain)


def _java_causes(error: BaseException) -> Iterator[Any]:
    """The Java throwables behind ``error``, the outermost first. Where the JVM is gone, there are no more of them."""
    # `_origin` is a Java throwable or a Py4JJavaError that holds one. getattr on a Java object never fails, so that
    # only the type tells them apart.
    cause: Any = error if type(error).__name__ == "Py4JJavaError" else getattr(error, "_origin", None)
    if type(cause).__name__ == "Py4JJavaError":
        cause = cause.java_exception
    for _ in range(MAX_CHAIN):
        if cause is None:
            return
        yield cause
        try:
            cause = cause.getCause()
        except Exception:
            return
