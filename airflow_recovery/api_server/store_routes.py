"""Routes that wait for a store, and keep nobody else waiting.

The API server runs whatever is not asynchronous in one pool of 40 threads, which the tab would share with the Execution
API: a store that does not answer, and forty open tabs, would stop the heartbeats of tasks, which Airflow then kills. So
these routes have a few threads of their own; who finds no room is told so, and waits in no thread at all. Where a store
has given no answer in time, nobody asks it for a while.
"""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, get_type_hints

import anyio
import anyio.to_thread
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from airflow_recovery.errors import StoreTimeout

ROOM = 8
"""Requests that wait for a store at once, in each process of the API server."""
WAIT_S = 1.0
"""For so long a request waits for room; it costs no thread."""
PAUSE_S = 10.0
"""For so long nobody asks after a time-out."""


class StoreGate:
    """Whether a request may go to the store now. ``clock`` counts seconds, from anywhere."""

    def __init__(
        self,
        room: int = ROOM,
        *,
        wait_s: float = WAIT_S,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._room = anyio.CapacityLimiter(room)
        self._wait_s = wait_s
        self._pause_s = pause_s
        self._clock = clock
        self._silent_until = -math.inf

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """While the request is carried out. Raises HTTP 503 without room, and while the store is known to be silent."""
        self._refuse_while_silent()
        request = object()
        try:
            with anyio.fail_after(self._wait_s):
                await self._room.acquire_on_behalf_of(request)
        except TimeoutError:
            raise _later(
                f"Recovery's pages already wait for the store with {self._room.total_tokens:g} requests: ask again "
                "in a moment.",
                self._wait_s,
            ) from None
        try:
            self._refuse_while_silent()  # it may have fallen silent while this one waited
            yield
        except StoreTimeout:
            self._silent_until = self._clock() + self._pause_s
            raise
        finally:
            self._room.release_on_behalf_of(request)

    def _refuse_while_silent(self) -> None:
        left_s = self._silent_until - self._clock()
        if left_s > 0:
            # Not what the store's client said: whoever asks has not been asked yet who he is.
            raise _later(f"The store does not answer, and is asked again in {math.ceil(left_s)} s.", left_s)


def _later(detail: str, seconds: float) -> HTTPException:
    return HTTPException(503, detail, headers={"Retry-After": str(math.ceil(seconds))})


gate = StoreGate()
"""Of this process."""


class StoreRoute(APIRoute):
    """Its endpoint, a plain function, passes the `gate`, and runs in a thread of its own; so is its answer written."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        # A router that takes over another one's routes makes them anew of the endpoints that they have.
        is_made = inspect.iscoroutinefunction(endpoint)
        super().__init__(path, endpoint if is_made else _in_own_thread(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The gate comes before everything else of the request: who is refused has not even been asked who he is."""
        handler = super().get_route_handler()

        async def admitted(request: Request) -> Response:
            async with gate.admitted():
                return await handler(request)

        return admitted


def _in_own_thread(endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Response]]:
    written = TypeAdapter(get_type_hints(endpoint, include_extras=True)["return"])

    def answer(arguments: dict[str, Any]) -> Response:
        response = endpoint(**arguments)
        if isinstance(response, Response):
            return response
        headers = dict(arguments["response"].headers) if "response" in arguments else None
        return Response(written.dump_json(response, by_alias=True), headers=headers, media_type="application/json")

    @functools.wraps(endpoint)
    async def waiting(**arguments: Any) -> Response:
        # The gate counts the requests; a limiter of its own keeps this one out of the pool that all others share.
        return await anyio.to_thread.run_sync(answer, arguments, limiter=anyio.CapacityLimiter(1))

    return waiting
