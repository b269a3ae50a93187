"""``POST``: what would happen if, and have it done.

A plan is shown first and run second. Between the two the page keeps it; nothing of it is believed but the question: the
plan is made anew, and where the run has moved on it is refused with what has changed. So a second press of the button,
an old page and a page of another user change nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT, MAY_ASK
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.changes import AppliedPlan, apply_kept_plan
from airflow_recovery.api_server.compare_and_clear import clear, observe
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.dags import declared_otherwise
from airflow_recovery.api_server.journals import change, read
from airflow_recovery.api_server.plan_readings import KeptPlan, PlanAnswer, read_plan
from airflow_recovery.api_server.readings import Tries
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.attempt.task_instances import ClearRequest
from airflow_recovery.story.what_if import WhatIf, prepared_from_json

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)

Names = Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=1000)]
Group = Annotated[str | None, Query(description="Task group; the first one, where it is left out")]


class Question(BaseModel):
    """Nothing: the run as it is, so that what is lost or has failed is made again. Several things: all at once."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    restart: Names = []
    """Regions."""
    from_: Names = Field([], alias="from")
    """Vertices: their regions, and everything that reads these."""
    recompute: bool = False
    """Everything."""
    failed: Names = []
    """Regions that are supposed to fail."""
    lost: Names = []
    """Results that are supposed to be gone."""
    changed: Names = []
    """Vertices whose code is supposed to have changed."""

    def what_if(self) -> WhatIf:
        """The question as the planner knows it."""
        return WhatIf(
            tuple(self.restart),
            tuple(self.from_),
            self.recompute,
            tuple(self.failed),
            tuple(self.lost),
            tuple(self.changed),
        )


class Applied(BaseModel):
    """What was done. ``cleared``: tasks that Airflow will run again. What has moved on by itself is not among them."""

    plan_id: str
    resets: list[str]
    cleared: list[str]


@router.post(
    "/dags/{dag_id}/runs/{run_id}/plan",
    dependencies=MAY_ASK,
    response_model=PlanAnswer,
    openapi_extra=described(Question),
)
def make_plan(
    dag_id: str,
    run_id: str,
    question: Annotated[Question, Depends(json_body(Question))],
    session: SessionDep,
    user: GetUserDep,
    group: Group = None,
) -> Any:
    """What would run, what is kept, and why. Changes nothing: whoever may see the run may ask."""
    row, tries = find_dag_run(session, dag_id, run_id), observe(session, dag_id, run_id)
    otherwise = declared_otherwise(session, dag_id, run_id)
    session.close()  # the connection serves others while the store is asked
    return read(
        read_plan,
        Tries.of(tries),
        dag_id=dag_id,
        run_key=row.run_key,
        group=group,
        question=question.what_if(),
        user=user.get_name(),
        otherwise=otherwise,
    )


@router.post("/dags/{dag_id}/runs/{run_id}/plan/run", dependencies=MAY_ACT, openapi_extra=described(KeptPlan))
def run_plan(
    dag_id: str,
    run_id: str,
    kept: Annotated[KeptPlan, Depends(json_body(KeptPlan))],
    session: SessionDep,
    user: GetUserDep,
    group: Group = None,
) -> Applied:
    """Have a plan done, as `make_plan` has answered it. 409 with what has changed, where it holds no more."""
    try:
        seen = prepared_from_json(kept.plan, kept.tries)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error
    if seen.id != kept.plan_id:
        raise HTTPException(422, f"Expected the plan {kept.plan_id}, found another one. Send it as it was answered.")
    who = user.get_name()
    row, tries = find_dag_run(session, dag_id, run_id), observe(session, dag_id, run_id)
    session.close()
    found: AppliedPlan = change(
        apply_kept_plan,
        lambda said: audit(session, who, "airflow_recovery.run_plan", dag_id, run_id, dict(said)),
        Tries.of(tries),
        dag_id=dag_id,
        run_key=row.run_key,
        group=group,
        plan=kept.plan,
        kept_tries=kept.tries,
        who=who,
    )
    if found.consumers is None:
        raise HTTPException(422, found.refusal)
    # The resets come first: whichever of these tasks runs by itself before it is cleared honours them.
    cleared = clear(session, dag_id, run_id, ClearRequest(consumers=found.consumers, unblock=True)).cleared
    return Applied(plan_id=found.plan_id, resets=list(found.resets), cleared=list(cleared))
