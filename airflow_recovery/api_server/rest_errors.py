"""What every route answers when it can't: ``{"detail": words, "code": one of `ErrorCode`, "changed": [...]}``.

``code`` is stable, for programs; ``detail`` is for people, one line, and may be worded anew. Nothing of a stack trace
and nothing of what was asked is in it but names. Whatever is wrong with a store or with what lies in it is no 500: that
status is left to mistakes of this program.
"""

from __future__ import annotations

import logging
import math
from enum import Enum
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException as StarletteHTTPException

from airflow_recovery.errors import (
    AttemptLost,
    ConfigurationError,
    JournalInUse,
    Kind,
    NotMine,
    OutputAltered,
    PagesDisagree,
    ReadingStopped,
    RecoveryError,
    StoreAccessDenied,
    StoreCredentialsExpired,
    StoreError,
)
from airflow_recovery.escaping import one_line

log = logging.getLogger(__name__)


class ErrorCode(str, Enum):
    """What went wrong, for programs: a code never changes its meaning."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    """No such DAG, run, group, region or result, or nothing is recorded of it."""
    OUTDATED = "outdated"
    """The run has moved on: nothing was changed. ``changed`` says what is different."""
    IN_USE = "in_use"
    """Somebody works with what is to be changed: nothing was changed."""
    GONE = "gone"
    """The caller is no longer its own try."""
    INVALID = "invalid"
    """The request can't be read, or asks for what nobody can bring about."""
    MISCONFIGURED = "misconfigured"
    """``[recovery]`` of this API server, or a connection that it names."""
    DENIED = "store_denied"
    """The store refuses this API server's credentials."""
    UNREADABLE = "unreadable"
    """The journal holds what this version can't read."""
    NO_ANSWER = "no_answer"
    """A store or the database gave no answer: ask again."""


class Problem(BaseModel):
    """The body of every error. ``changed``: what is different, where `ErrorCode.OUTDATED`; else empty."""

    detail: str
    code: ErrorCode
    changed: list[str] = []


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in (
        (401, "Nobody is logged in"),
        (403, "The user may not do this to this DAG"),
        (404, "No such run, group or region, or nothing is recorded"),
        (408, "The body did not come in time"),
        (409, "The run has moved on, or somebody is at work: nothing was changed"),
        (413, "The body is too large"),
        (422, "Not a request"),
        (502, "The journal, the store or this deployment's configuration can't be used: asking again does not help"),
        (503, "No answer of a store or of the database: ask again"),
    )
}
_BY_STATUS = {401: ErrorCode.UNAUTHORIZED, 403: ErrorCode.FORBIDDEN, 404: ErrorCode.NOT_FOUND, 410: ErrorCode.GONE}
_BY_KIND = {
    Kind.NOT_FOUND: (404, ErrorCode.NOT_FOUND),
    Kind.OUTDATED: (409, ErrorCode.OUTDATED),
    Kind.REFUSED: (409, ErrorCode.IN_USE),
    Kind.CORRUPT: (502, ErrorCode.UNREADABLE),
}
# Asked before the kind: what the caller can do about it is something else.
_BY_CLASS: tuple[tuple[type[RecoveryError], int, ErrorCode], ...] = (
    (JournalInUse, 409, ErrorCode.IN_USE),
    (AttemptLost, 409, ErrorCode.IN_USE),
    (OutputAltered, 409, ErrorCode.IN_USE),
    (NotMine, 410, ErrorCode.GONE),
    (ConfigurationError, 502, ErrorCode.MISCONFIGURED),
    (StoreAccessDenied, 502, ErrorCode.DENIED),
    (StoreCredentialsExpired, 502, ErrorCode.DENIED),
    (PagesDisagree, 503, ErrorCode.NO_ANSWER),
    (ReadingStopped, 503, ErrorCode.NO_ANSWER),
)


def _status_of(error: RecoveryError) -> tuple[int, ErrorCode]:
    for kind, status, code in _BY_CLASS:
        if isinstance(error, kind):
            return status, code
    is_of_store = isinstance(error, StoreError)
    return _BY_KIND.get(error.kind, (503, ErrorCode.NO_ANSWER) if is_of_store else (502, ErrorCode.UNREADABLE))


def add_error_handlers(app: FastAPI) -> None:
    """Have ``app`` answer every error in the one shape."""
    app.add_exception_handler(RecoveryError, _of_recovery)
    app.add_exception_handler(OperationalError, _ask_again)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(StarletteHTTPException, _of_http)
    app.add_exception_handler(HTTPException, _of_http)


def _answer(status: int, code: ErrorCode, detail: str, changed: tuple[str, ...] = ()) -> JSONResponse:
    return JSONResponse({"detail": detail, "code": code.value, "changed": list(changed)}, status_code=status)


def _of_recovery(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RecoveryError)
    status, code = _status_of(error)
    if status >= 500:
        log.warning("%s %s: %s", request.method, one_line(request.url.path), one_line(str(error)))
    # KeyError's own text is the repr of its argument.
    detail = str(error.args[0]) if error.args else str(error)
    answer = _answer(status, code, one_line(detail), getattr(error, "changed", ()))
    if status == 503:
        answer.headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "retry_after_s", 0.0))))
    return answer


def _ask_again(request: Request, error: Exception) -> JSONResponse:
    """A lock that was not had in time, a deadlock, a database that restarts. The session is rolled back: nothing done.

    A handler and not a clause in the endpoints, since the commit comes after them.
    """
    del request
    cause = getattr(error, "orig", error)
    return _answer(503, ErrorCode.NO_ANSWER, f"The database did not answer, ask again: {cause}")


def _of_validation(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return _answer(422, ErrorCode.INVALID, "; ".join(problems))


def _of_http(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, StarletteHTTPException)
    code = _BY_STATUS.get(error.status_code, ErrorCode.INVALID if error.status_code < 500 else ErrorCode.NO_ANSWER)
    answer = _answer(error.status_code, code, str(error.detail))
    answer.headers.update(error.headers or {})
    return answer
