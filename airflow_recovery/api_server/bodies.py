"""Read the body of a request after Airflow has authorised the user, with limits in size and time.

FastAPI reads a declared body before it runs the dependencies that authorise the user. So no route declares a body: a
dependency reads it. FastAPI runs the dependencies of the route first. A request whose body has not arrived holds no
place and no thread.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from airflow_recovery.airflow_compat import GetUserDep

MAX_BYTES = 16 * 1024 * 1024
"""The largest bodies are plans of large runs, which the page sends back."""
MAX_BYTES_OF_A_USER = 2 * MAX_BYTES
"""For all bodies of one user that are being received at the same time."""
MAX_S = 10.0
"""For one body, from its first byte to its last."""

_arriving: Counter[str] = Counter()
"""Bytes received of unfinished bodies, by user. Only the event loop changes it."""


def json_body(kind: Any) -> Callable[..., Awaitable[Any]]:
    """Return a dependency that reads a JSON body as a ``kind``. `described` documents the body for OpenAPI."""
    adapter = TypeAdapter(kind)

    async def read(request: Request, user: GetUserDep) -> Any:
        body = await _whole(request, user.get_name())
        try:
            # Not in the event loop: a large body takes a tenth of a second.
            return await anyio.to_thread.run_sync(lambda: adapter.validate_python(json.loads(body or b"null")))
        except ValidationError as error:
            problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
            raise RequestValidationError(problems) from error
        except (ValueError, RecursionError) as error:
            raise HTTPException(422, f"Expected a body of JSON: {error}") from error

    return read


def described(kind: Any) -> dict[str, Any]:
    """Return ``openapi_extra`` for a route whose body is a ``kind``."""
    content = {"application/json": {"schema": TypeAdapter(kind).json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def _whole(request: Request, user: str) -> bytes:
    """Return the body. Raises HTTP 408 if it is late, 413 if it is too large, 503 if the user sends too many."""
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(MAX_S):
            async for part in request.stream():
                size += len(part)
                _arriving[user] += len(part)
                if size > MAX_BYTES:
                    raise HTTPException(413, f"Expected a body of at most {MAX_BYTES} bytes, found more.")
                if _arriving[user] > MAX_BYTES_OF_A_USER:
                    detail = (
                        f"Expected at most {MAX_BYTES_OF_A_USER} bytes at the same time in all your requests, found "
                        "more. Try again in a moment."
                    )
                    raise HTTPException(503, detail, headers={"Retry-After": str(math.ceil(MAX_S))})
                parts.append(part)
    except TimeoutError:
        raise HTTPException(
            408, f"Expected the whole body within {MAX_S:g} s, found {size} bytes.", headers={"Connection": "close"}
        ) from None
    finally:
        _arriving[user] -= size
        if not _arriving[user]:
            del _arriving[user]
    return b"".join(parts)
