"""In the API server, for tests: its journal can be exchanged for one in a store that never answers.

And the routes of a run as FastAPI makes them of plain functions: what they were without `api_server/store_routes.py`.
"""

from __future__ import annotations

import inspect

from fastapi import FastAPI
from fastapi.routing import APIRoute

from airflow_recovery.api_server import journals, rest_run
from airflow_recovery.api_server.rest_errors import add_error_handlers
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores

app = FastAPI()
add_error_handlers(app)
for route in rest_run.router.routes:
    assert isinstance(route, APIRoute)
    app.add_api_route(route.path, inspect.unwrap(route.endpoint), dependencies=route.dependencies, methods=["GET"])

answering = journals.deployment_stores
silent = open_stores(RecoverySettings("s3://silent/journal", "s3://silent/results"), journals.TIMEOUTS)


@app.post("/journal/{name}")
async def exchange(name: str) -> str:
    """``silent``, or ``answering``: as it is configured."""
    journals.deployment_stores = (lambda: silent) if name == "silent" else answering  # type: ignore[assignment]
    return name
