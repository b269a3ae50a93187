"""``POST``: no release policy, gc or purge deletes the data of an attempt, until it is unpinned."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import view_of
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.rest_release import WhichAttempt
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.attempt.pin import pin as pin_data
from airflow_recovery.attempt.pin import unpin
from airflow_recovery.journal.recorded import recorded_journal

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


class Pin(WhichAttempt):
    """``pinned``: pin it, or unpin it. ``why`` is for whoever wants the room one day."""

    model_config = ConfigDict(extra="forbid")

    pinned: bool = True
    why: str = Field("pinned on the Recovery tab", max_length=1000)


class Pinned(BaseModel):
    """Who has pinned or unpinned it. What was pinned already stays pinned by whoever it was."""

    region: str
    attempt: int
    pinned: bool
    who: str
    why: str


@router.post("/dags/{dag_id}/runs/{run_id}/pin", dependencies=MAY_ACT)
def pin(dag_id: str, run_id: str, which: Pin, session: SessionDep, user: GetUserDep, group: Group = None) -> Pinned:
    """Pin the data of one attempt, or unpin them. Twice is once."""
    who = user.get_name()
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    audit(session, who, "airflow_recovery.pin", dag_id, run_id, which.model_dump())
    session.close()
    change = pin_data if which.pinned else unpin
    with recorded_journal(view.journal) as journal:
        turn = change(journal, view.in_use.state, which.region, which.attempt, who, which.why)
    return Pinned(region=turn.region, attempt=turn.attempt, pinned=turn.is_pinned, who=turn.who, why=turn.why)
