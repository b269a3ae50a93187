"""In the API server, for tests: what it was without its protections, and how many requests are where.

`hold` stops whoever reads a large run until it is let go, so that a test can look at what the others get meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute, APIRouter

from airflow_recovery.api_server import journals, readings, rest_run, store_routes
from airflow_recovery.api_server.access import MAY_ASK, MAY_READ
from airflow_recovery.api_server.places import Places, Who
from airflow_recovery.api_server.rest_errors import add_error_handlers
from airflow_recovery.api_server.rest_plan import Question
from airflow_recovery.api_server.shared_reads import KeptDocuments, SharedReads
from airflow_recovery.testing.patience import HANG_S

app = FastAPI()
add_error_handlers(app)
first_come = Places(store_routes.ROOM, by_user=store_routes.ROOM, by_dag=store_routes.ROOM, wait_s=0.2)


class PlaceFirst(APIRoute):
    """A place comes before everything else of the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def placed(request: Request) -> Response:
            async with first_come.take(Who("nobody", "")):
                return await handler(request)

        return placed


router = APIRouter(route_class=PlaceFirst)


@router.post("/dags/{dag_id}/runs/{run_id}/plan", dependencies=MAY_ASK)
async def plan(dag_id: str, run_id: str, question: Question) -> str:
    return f"{dag_id} {run_id} {question}"


@router.get("/dags/{dag_id}/runs/{run_id}", dependencies=MAY_READ)
async def page(dag_id: str, run_id: str) -> str:
    return f"{dag_id} {run_id}"


app.include_router(router)

held = 0
asked = 0
entered = 0
let_go = threading.Event()
let_go.set()
_ask, _view_run, _answer = journals.readers.ask, readings.view_run, SharedReads.answer


def _ask_counted(*arguments: Any) -> Any:
    global asked
    asked += 1
    _wait()
    return _ask(*arguments)


def _view_held(*arguments: Any, **named: Any) -> Any:
    _wait()
    return _view_run(*arguments, **named)


def _wait() -> None:
    global held
    held += 1
    assert let_go.wait(HANG_S)
    held -= 1


async def _answer_counted(self: SharedReads, *arguments: Any) -> Any:
    global entered
    entered += 1
    return await _answer(self, *arguments)


patch = pytest.MonkeyPatch()
patch.setattr(journals.readers, "ask", _ask_counted)
patch.setattr(SharedReads, "answer", _answer_counted)


class Unshared(SharedReads):
    """Each request reads for itself."""

    async def answer(self, who: Who, key: Any, work: Any, finish: Any = lambda found: found) -> Any:
        return finish(await store_routes.carried_out(who, work))


@app.post("/hold/{held}")
async def hold(held: bool) -> None:
    """Whoever reads a large run waits."""
    if held:
        let_go.clear()
    else:
        let_go.set()


@app.post("/protected/{is_protected}")
async def protect(is_protected: bool) -> None:
    """Without: each viewer reads for himself, in the API server, on whatever places there are."""
    journals._large.clear()
    journals.READS_LARGE_RUNS_APART = is_protected
    readings.view_run = _view_run if is_protected else _view_held
    rest_run.kept_documents = KeptDocuments()
    rest_run.shared_reads = SharedReads() if is_protected else Unshared()
    room = store_routes.ROOM
    store_routes.places = (
        Places(room, by_user=3, by_dag=4, wait_s=HANG_S)
        if is_protected
        else Places(room, by_user=room, by_dag=room, wait_s=0.2)
    )


@app.get("/counts")
async def counts() -> dict[str, int]:
    return {
        "entered": entered,
        "asked": asked,
        "held": held,
        "taken": store_routes.places.taken,
        "place first": first_come.taken,
    }
