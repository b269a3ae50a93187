"""``POST``: no release policy, gc or purge deletes the data of an attempt, until it is unpinned."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.changes import pin_attempt
from airflow_recovery.api_server.journals import audited_change
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.rest_release import WhichAttempt
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.model.records import Pin as PinRecord

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


@router.post("/dags/{dag_id}/runs/{run_id}/pin", dependencies=MAY_ACT, openapi_extra=described(Pin))
def pin(
    dag_id: str,
    run_id: str,
    which: Annotated[Pin, Depends(json_body(Pin))],
    session: SessionDep,
    user: GetUserDep,
    group: Group = None,
) -> Pinned:
    """Pin the data of one attempt, or unpin them. Twice is once."""
    turn: PinRecord = audited_change(
        pin_attempt,
        "airflow_recovery.pin",
        session,
        user.get_name(),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        asked=which.model_dump(),
    )
    return Pinned(region=turn.region, attempt=turn.attempt, pinned=turn.is_pinned, who=turn.who, why=turn.why)
