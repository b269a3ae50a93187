"""In the API server, for tests: its journal can be exchanged for one in a store that never answers.

And a run's page as FastAPI makes it of a plain function: what it was without `api_server/store_routes.py`.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from airflow_recovery.airflow_compat import SessionDep
from airflow_recovery.api_server import journals, store_routes
from airflow_recovery.api_server.access import MAY_READ
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.places import Places
from airflow_recovery.api_server.rest_errors import add_error_handlers
from airflow_recovery.api_server.silence import Silence
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Timeouts, open_stores
from airflow_recovery.testing.patience import HANG_S

app = FastAPI()
add_error_handlers(app)


@app.get("/dags/{dag_id}/runs/{run_id}", dependencies=MAY_READ)
def run(dag_id: str, run_id: str, session: SessionDep) -> Any:
    """A run's page."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    return str(journals.deployment_access().view_of(dag_id, row.run_key, None))


answering = journals.deployment_stores
# A request waits until the test hangs up.
PATIENT = Timeouts(connect_s=HANG_S, read_s=HANG_S, read_attempts=1)
silent = open_stores(RecoverySettings("s3://silent/journal", "s3://silent/results"), PATIENT)
own_places = store_routes.places


@app.post("/journal/{name}")
async def exchange(name: str) -> str:
    """``silent``, or ``answering``: as it is configured."""
    journals.deployment_stores = (lambda: silent) if name == "silent" else answering  # type: ignore[assignment]
    # With its own times, who is refused at once, and who later, would depend on how fast this machine is.
    patient = Places(store_routes.ROOM, by_user=store_routes.ROOM, by_dag=store_routes.ROOM, wait_s=HANG_S)
    store_routes.places = patient if name == "silent" else own_places
    journals.silence = Silence(HANG_S) if name == "silent" else Silence()
    return name
