"""Routes that wait for a store, and keep nobody else waiting.

The API server runs whatever is not asynchronous in one pool of 40 threads, which the tab would share with the Execution
API: a store that does not answer, and forty open tabs, would stop the heartbeats of tasks, which Airflow then kills. So
these routes have a few threads of their own. A request that waits for one of them holds no thread. Another process
reads large runs, so that the interpreter of the API server stays free.

The order of each request: Airflow authorises the user; `airflow_recovery.api_server.bodies` reads the body; the request
takes a place; it works.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

import anyio
import anyio.to_thread
from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from airflow_recovery.airflow_compat import GetUserDep
from airflow_recovery.api_server.journals import Apart
from airflow_recovery.api_server.places import Places, Who
from airflow_recovery.api_server.readers import PROCESSES

JSON = "application/json"
ROOM = 8
"""Requests that wait for a store at once, in each process of the API server."""
WAIT_S = 5.0
"""How long a request waits for a place."""
WAIT_FOR_A_PROCESS_S = 30.0

places = Places(ROOM, by_user=3, by_dag=4, wait_s=WAIT_S)
large_runs = Places(PROCESSES, by_user=1, by_dag=1, wait_s=WAIT_FOR_A_PROCESS_S)
"""For requests that another process answers."""


async def carried_out(who: Who, work: Callable[[], Any]) -> Any:
    """Run ``work`` in a thread of its own and return its result. Raises `NoPlace`.

    If the result is an `Apart`, let another process answer it.
    """
    async with places.take(who):
        found = await _in_own_thread(work)
    if isinstance(found, Apart):
        async with large_runs.take(who):
            found = await _in_own_thread(found.ask)
    return found


async def _in_own_thread(work: Callable[[], Any]) -> Any:
    # The places limit the threads. The own limiter keeps them out of the pool that the API server shares.
    return await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))


class StoreRoute(APIRoute):
    """Runs its endpoint, a plain function, in a place and a thread of its own. Writes the answer there, too."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        # A router that takes over another one's routes makes them anew of the endpoints that they have.
        is_made = inspect.iscoroutinefunction(endpoint)
        super().__init__(path, endpoint if is_made else _placed(endpoint), **options)


def _placed(endpoint: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Response]]:
    kind = get_type_hints(endpoint, include_extras=True)["return"]
    written = None if kind is Any else TypeAdapter(kind)  # readings return JSON

    def answer(arguments: dict[str, Any]) -> Any:
        found = endpoint(**arguments)
        return found if written is None else Response(written.dump_json(found, by_alias=True), media_type=JSON)

    @functools.wraps(endpoint)
    async def placed(asking_user: GetUserDep, **arguments: Any) -> Response:
        who = Who(str(asking_user.get_name()), arguments.get("dag_id", ""))
        found = await carried_out(who, functools.partial(answer, arguments))
        return found if isinstance(found, Response) else Response(found, media_type=JSON)

    own = inspect.signature(endpoint, eval_str=True)
    asking = inspect.Parameter("asking_user", inspect.Parameter.KEYWORD_ONLY, annotation=GetUserDep)
    placed.__signature__ = own.replace(parameters=[*own.parameters.values(), asking])  # type: ignore[attr-defined]
    return placed
