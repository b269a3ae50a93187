"""The plugin's application on a port of its own, and pages that frame its pages as Airflow's do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlencode

import uvicorn
from fastapi import FastAPI
from rest_world import DAG, RUN
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Mount, Route

from airflow_recovery.api_server.app import app as plugin_app
from airflow_recovery.attempt.clear_protocol import API_PREFIX
from airflow_recovery.testing.patience import HANG_S

SANDBOX = "allow-scripts allow-same-origin allow-forms allow-downloads"
"""What Airflow lets a framed page do."""


class Site:
    """Where the pages are."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def run_page(self, dag_id: str = DAG, run_id: str = RUN) -> str:
        return f"{self.url}/run?{urlencode({'dag_id': dag_id, 'run_id': run_id}, quote_via=quote)}"

    def dag_page(self, dag_id: str = DAG) -> str:
        return f"{self.url}/dag?{urlencode({'dag_id': dag_id}, quote_via=quote)}"


@contextmanager
def serve(app: FastAPI = plugin_app) -> Iterator[Site]:
    """While the context lasts."""
    pages = {"/run": _framed("run.html"), "/dag": _framed("dag.html"), "/": _empty}
    routes = [*(Route(path, page) for path, page in pages.items()), Mount(API_PREFIX, app)]
    config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="tab-server", daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.05)
        assert thread.is_alive(), "the server did not start"
    try:
        yield Site(server.servers[0].sockets[0].getsockname()[1])
    finally:
        # A browser's open connection would keep it, and its thread would be there in the tests of other folders.
        server.should_exit = server.force_exit = True
        thread.join(HANG_S)
    assert not thread.is_alive()


def _empty(request: Request) -> HTMLResponse:
    del request
    return HTMLResponse('<!doctype html><html lang="en"><title>Airflow</title><link rel="icon" href="data:,">')


def _framed(page: str) -> Callable[[Request], HTMLResponse]:
    def answer(request: Request) -> HTMLResponse:
        return HTMLResponse(
            '<!doctype html><html lang="en"><title>Airflow</title><link rel="icon" href="data:,">'
            f'<body style="margin:0"><iframe title="Recovery" sandbox="{SANDBOX}" '
            f'src="{API_PREFIX}/ui/{page}?{request.url.query}" '
            'style="border:0;display:block;width:100%;height:100vh"></iframe>'
        )

    return answer
