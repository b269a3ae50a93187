"""Make plans, and preview releases, without Airflow.

Called like the functions of `airflow_recovery.api_server.readings`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from airflow_recovery.api_server.readings import Access, as_json, evaluation_of, places_of
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.model.keys import TaskKey
from airflow_recovery.model.result_type import kept_by
from airflow_recovery.planning.plan_text import count_text, plan_text
from airflow_recovery.planning.scenario import Request
from airflow_recovery.story.compared_components import unseen_code, unseen_text
from airflow_recovery.story.deploy_impact import DECLARED_OTHERWISE, TRIGGER_RULE
from airflow_recovery.story.release_preview import preview_release
from airflow_recovery.story.run_view import RunView
from airflow_recovery.story.what_if import Prepared, WhatIf, not_asked, prepare


class KeptPlan(BaseModel):
    """The part of a plan that a page keeps, and sends back to apply the plan."""

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


def read_plan(
    access: Access,
    *,
    dag_id: str,
    run_key: str,
    group: str | None,
    question: WhatIf,
    user: str,
    observation: Observation,
    otherwise: Mapping[str, Sequence[str]],
) -> bytes:
    """Make the plan for a question. ``otherwise``: the declarations that have changed since the last try, by task."""
    view = access.view_of(dag_id, run_key, group)
    prepared = prepared_of(access, view, question.request(user), observation)
    plan = prepared.plan
    return as_json(
        PlanAnswer(
            plan_id=prepared.id,
            plan=plan.to_json(),
            tries=dict(prepared.tries),
            asked=plan.request.text(),
            summary=count_text(plan),
            text=plan_text(plan),
            can_run=prepared.can_run,
            resets=[f"{reset.region}@{reset.attempt}" for reset in plan.resets or ()],
            warnings=[*_warnings(access, view, prepared), *_declared_otherwise(view, prepared, otherwise)],
        )
    )


def read_release_plan(access: Access, *, dag_id: str, run_key: str, group: str | None, region: str) -> bytes:
    """Preview the release of the data of a region."""
    view = access.view_of(dag_id, run_key, group)
    preview = preview_release(view, evaluation_of(access, view), region)
    return as_json(replace(preview, warnings=(*preview.warnings, *_not_asked_warnings(access, view))))


def prepared_of(access: Access, view: RunView, request: Request, observation: Observation) -> Prepared:
    """Make the plan of ``request`` for the run as it is now."""
    return prepare(view, evaluation_of(access, view), request, observation)


def _warnings(access: Access, view: RunView, prepared: Prepared) -> list[str]:
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
        and any(kept_by(output.location) for output in current.outcome.outputs)
    ]
    if cached:
        warnings.append(f"Taken to be cached still, since only tasks can ask their Spark server: {', '.join(cached)}.")
    warnings += [f"Withdrawn, so that other DAGs are not given it: {turn.text()}." for turn in view.withdrawn]
    unseen = unseen_text(unseen_code(view))
    return [*warnings, *([unseen] if unseen else []), *_not_asked_warnings(access, view)]


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


def _not_asked_warnings(access: Access, view: RunView) -> list[str]:
    """Return a warning with the results that the API server did not look for, and the reason."""
    unseen = not_asked(places_of(access, view), view)
    if not unseen:
        return []
    return [
        f"Not asked, and taken to be there: {', '.join(unseen)}. The API server opens a location of your own only if a "
        "plan of this run declares it and it is in [recovery] allowed_locations. The tasks look."
    ]
