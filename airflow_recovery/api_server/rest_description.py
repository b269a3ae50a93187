"""``GET``: what is installed and configured in this API server (`description`)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from airflow_recovery.airflow_compat import SessionDep
from airflow_recovery.api_server.access import MAY_ACT
from airflow_recovery.api_server.description import describe
from airflow_recovery.api_server.rest_errors import RESPONSES

router = APIRouter(responses=RESPONSES)


# Who may edit the task instances of every DAG, as the user of ``[recovery] api_conn_id`` may. It changes nothing.
@router.get("/description", dependencies=MAY_ACT[:1])
def description(session: SessionDep) -> dict[str, Any]:
    """Versions, the state store back end, ``[recovery]``'s places, and the clocks of server and database."""
    return describe(session)
