"""In the API server, for tests: its journal can be exchanged for one in a store that never answers.

And the routes of a run as FastAPI makes them of plain functions: what they were without `api_server/store_routes.py`.
"""

from __future__ import annotations

import inspect

from fastapi import FastAPI
from fastapi.routing import APIRoute

from airflow_recovery.api_server import journals, rest_run, store_routes
from airflow_recovery.api_server.rest_errors import add_error_handlers
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Timeouts, open_stores
from airflow_recovery.testing.patience import HANG_S

app = FastAPI()
add_error_handlers(app)
for route in rest_run.router.routes:
    assert isinstance(route, APIRoute)
    app.add_api_route(route.path, inspect.unwrap(route.endpoint), dependencies=route.dependencies, methods=["GET"])

answering = journals.deployment_stores
# A request waits until the test hangs up.
PATIENT = Timeouts(connect_s=HANG_S, read_s=HANG_S, read_attempts=1)
silent = open_stores(RecoverySettings("s3://silent/journal", "s3://silent/results"), PATIENT)
own_gate = store_routes.gate


@app.post("/journal/{name}")
async def exchange(name: str) -> str:
    """``silent``, or ``answering``: as it is configured."""
    journals.deployment_stores = (lambda: silent) if name == "silent" else answering  # type: ignore[assignment]
    # With its own times, who is refused at once, and who later, would depend on how fast this machine is.
    patient_gate = store_routes.StoreGate(wait_s=HANG_S, pause_s=HANG_S)
    store_routes.gate = patient_gate if name == "silent" else own_gate
    return name
