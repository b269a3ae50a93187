"""``POST``: what would happen if, and have it done.

A plan is shown first and run second. Between the two the page keeps it; nothing of it is believed but the question: the
plan is made anew, and where the run has moved on it is refused with what has changed. So a second press of the button,
an old page and a page of another user change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT, MAY_ASK
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.compare_and_clear import clear, observe
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.dags import TRIGGER_RULE, declared_otherwise
from airflow_recovery.api_server.journals import deployment_stores, evaluation_of, not_asked, view_of
from airflow_recovery.api_server.rest_errors import RESPONSES, Outdated
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.attempt.clear_protocol import MAX_KEYS
from airflow_recovery.attempt.task_instances import ClearRequest, Observation
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.model.cached_location import is_cached_location
from airflow_recovery.model.keys import TaskKey
from airflow_recovery.planning.plan_text import count_text, plan_text
from airflow_recovery.planning.scenario import Request
from airflow_recovery.story.compared_components import unseen_code, unseen_text
from airflow_recovery.story.deploy_impact import DECLARED_OTHERWISE
from airflow_recovery.story.run_view import RunView
from airflow_recovery.story.what_if import (
    Prepared,
    WhatIf,
    asked_by,
    changes,
    prepare,
    prepared_from_json,
    tasks_to_clear,
)

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


class KeptPlan(BaseModel):
    """What a page keeps of a plan, and sends back to have it done."""

    model_config = ConfigDict(extra="forbid")

    plan_id: str
    plan: dict[str, Any]
    """`airflow_recovery.planning.plan.Plan`, as the command line's ``plan --json`` has it."""
    tries: dict[str, str]
    """The tasks that would be cleared, with their task instance ids."""


class PlanAnswer(KeptPlan):
    """A plan. ``can_run``: it is a restart, and supposes nothing. ``resets``: attempts that will not count any more."""

    asked: str
    summary: str
    text: str
    can_run: bool
    resets: list[str]
    warnings: list[str]


class Applied(BaseModel):
    """What was done. ``cleared``: tasks that Airflow will run again. What has moved on by itself is not among them."""

    plan_id: str
    resets: list[str]
    cleared: list[str]


@router.post("/dags/{dag_id}/runs/{run_id}/plan", dependencies=MAY_ASK)
def make_plan(
    dag_id: str, run_id: str, question: Question, session: SessionDep, user: GetUserDep, group: Group = None
) -> PlanAnswer:
    """What would run, what is kept, and why. Changes nothing: whoever may see the run may ask."""
    row, tries = find_dag_run(session, dag_id, run_id), observe(session, dag_id, run_id)
    otherwise = declared_otherwise(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    prepared = _prepare(view, question.what_if().request(user.get_name()), tries)
    plan = prepared.plan
    return PlanAnswer(
        plan_id=prepared.id,
        plan=plan.to_json(),
        tries=dict(prepared.tries),
        asked=plan.request.text(),
        summary=count_text(plan),
        text=plan_text(plan),
        can_run=prepared.can_run,
        resets=[f"{reset.region}@{reset.attempt}" for reset in plan.resets or ()],
        warnings=[*_warnings(view, prepared), *_declared_otherwise(view, prepared, otherwise)],
    )


@router.post("/dags/{dag_id}/runs/{run_id}/plan/run", dependencies=MAY_ACT)
def run_plan(
    dag_id: str, run_id: str, kept: KeptPlan, session: SessionDep, user: GetUserDep, group: Group = None
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
    view = view_of(dag_id, row.run_key, group)
    now = _prepare(view, asked_by(seen.plan.request, who), tries)
    if not now.can_run:
        raise HTTPException(422, f"{now.plan.request.text()}: what is only supposed can't be done. Ask for a restart.")
    changed = changes(seen, now, tries)
    if changed:
        raise Outdated("The run has moved on since this plan was made. Nothing was changed; make a new plan.", changed)
    if len(now.tries) > MAX_KEYS:
        raise HTTPException(
            422, f"Expected at most {MAX_KEYS} tasks to clear, found {len(now.tries)}: use the command."
        )
    asked = {"plan_id": now.id, "asked": now.plan.request.text(), "group_id": view.journal.identity.group_id}
    audit(session, who, "airflow_recovery.run_plan", dag_id, run_id, asked)
    with recorded_journal(view.journal) as journal:
        applied = apply_plan(journal, now.plan, who)
    # The resets come first: whichever of these tasks runs by itself before it is cleared honours them.
    consumers = tasks_to_clear(view, applied, now, tries)
    cleared = clear(session, dag_id, run_id, ClearRequest(consumers=consumers, unblock=True)).cleared
    return Applied(
        plan_id=now.id, resets=[f"{reset.region}@{reset.attempt}" for reset in applied.resets], cleared=list(cleared)
    )


def _prepare(view: RunView, request: Request, tries: Observation) -> Prepared:
    return prepare(view, evaluation_of(deployment_stores(), view), request, tries)


def _warnings(view: RunView, prepared: Prepared) -> list[str]:
    """What a person should know before pressing the button."""
    warnings = []
    finals = {region.name for region in view.in_use.plan.regions if region.final}
    again = [name for name in prepared.plan.running if name in finals]
    if again:
        warnings.append(f"Final results are made again, and readers outside the job see new data: {', '.join(again)}.")
    cached = [
        region.name
        for region in view.in_use.plan.regions
        if (current := view.in_use.state.of(region.name).current) is not None
        and current.outcome is not None
        and any(is_cached_location(output.location) for output in current.outcome.outputs)
    ]
    if cached:
        warnings.append(f"Taken to be cached still, since only tasks can ask their Spark server: {', '.join(cached)}.")
    warnings += [f"Withdrawn, so that other DAGs are not given it: {turn.text()}." for turn in view.withdrawn]
    unseen = unseen_text(unseen_code(view))
    return [*warnings, *([unseen] if unseen else []), *not_asked_warnings(view)]


def _declared_otherwise(view: RunView, prepared: Prepared, otherwise: Mapping[str, Sequence[str]]) -> list[str]:
    """Return warnings of kept regions whose declaration has changed. ``otherwise``: the changed parts, by task id."""
    again, group = set(prepared.plan.running), view.journal.identity.group_id
    arguments, rules = [], []
    for region in view.in_use.plan.regions:
        differing = otherwise.get(TaskKey.of_region(region, group).task_id, ())
        if region.name in again or view.in_use.state.of(region.name).current is None:
            continue
        if named := ", ".join(name for name in differing if name != TRIGGER_RULE):
            arguments.append(f"{region.name} ({named})")
        if TRIGGER_RULE in differing:
            rules.append(region.name)
    warnings = [f"{DECLARED_OTHERWISE.format(', '.join(arguments))}."] if arguments else []
    if rules:
        warnings.append(
            f"The trigger rule is not the one of the last try any more: {', '.join(rules)}. Today's rule decides which "
            "inputs may be absent."
        )
    return warnings


def not_asked_warnings(view: RunView) -> list[str]:
    """Which results nobody has looked for, and why."""
    unseen = not_asked(deployment_stores(), view)
    if not unseen:
        return []
    return [
        f"Not asked, and taken to be there: {', '.join(unseen)}. The API server opens a location of your own only if a "
        "plan of this run declares it and it is in [recovery] allowed_locations. The tasks look."
    ]
