"""``POST``: readers outside the run are not given published results any more, or are given them back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.changes import withdraw_results
from airflow_recovery.api_server.journals import audited_change
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.model.records import Withdrawal

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


class Withdraw(BaseModel):
    """``region``: a region, a task or a result; without it, everything that is published. ``reason``: readers get it.

    ``withdrawn`` False gives the results back.
    """

    model_config = ConfigDict(extra="forbid")

    region: str | None = Field(None, max_length=1000)
    withdrawn: bool = True
    reason: str = Field(min_length=1, max_length=1000)


class WithdrawnAttempt(BaseModel):
    """One attempt as it is now. What was withdrawn already stays withdrawn by whoever it was."""

    region: str
    attempt: int
    withdrawn: bool
    who: str
    reason: str


class Withdrawn(BaseModel):
    """Every attempt that was meant."""

    attempts: list[WithdrawnAttempt]


@router.post("/dags/{dag_id}/runs/{run_id}/withdraw", dependencies=MAY_ACT, openapi_extra=described(Withdraw))
def withdraw(
    dag_id: str,
    run_id: str,
    which: Annotated[Withdraw, Depends(json_body(Withdraw))],
    session: SessionDep,
    user: GetUserDep,
    group: Group = None,
) -> Withdrawn:
    """Withdraw what the newest publish names, or give it back. Twice is once."""
    turns: list[Withdrawal] = audited_change(
        withdraw_results,
        "airflow_recovery.withdraw",
        session,
        user.get_name(),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        asked=which.model_dump(),
    )
    return Withdrawn(
        attempts=[
            WithdrawnAttempt(
                region=turn.region, attempt=turn.attempt, withdrawn=turn.is_withdrawn, who=turn.who, reason=turn.reason
            )
            for turn in turns
        ]
    )
