"""Change a run for a user, without Airflow. Called like the functions of `airflow_recovery.api_server.readings`.

Each function first checks whether the change is possible, then writes the audit log, then makes the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_recovery.api_server.plan_readings import prepared_of
from airflow_recovery.api_server.readings import Access
from airflow_recovery.attempt import pin as pins
from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.attempt.clear_protocol import MAX_KEYS
from airflow_recovery.attempt.manual_release import check_may_go, release_by_hand
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.attempt.withdraw import withdraw
from airflow_recovery.errors import Outdated
from airflow_recovery.journal.owner import check_results
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.store.lifecycle import kept_after_deletion
from airflow_recovery.story.changed import Pinned, ReleasedData, Withdrawn
from airflow_recovery.story.release_preview import attempt_to_release
from airflow_recovery.story.what_if import asked_by, changes, prepared_from_json, tasks_to_clear


@dataclass(frozen=True)
class AppliedPlan:
    """The attempts that a plan has reset, and the tries of the tasks to clear. ``refusal``: why nothing was changed."""

    plan_id: str = ""
    resets: tuple[str, ...] = ()
    consumers: Mapping[str, str] | None = None
    refusal: str = ""


def apply_kept_plan(
    access: Access,
    *,
    dag_id: str,
    run_key: str,
    group: str | None,
    plan: Mapping[str, Any],
    kept_tries: Mapping[str, str],
    who: str,
    observation: Observation,
) -> AppliedPlan:
    """Apply a plan that a page has shown. Raises `Outdated` if the plan would be another one now."""
    seen = prepared_from_json(plan, kept_tries)
    view = access.view_of(dag_id, run_key, group)
    now = prepared_of(access, view, asked_by(seen.plan.request, who), observation)
    if not now.can_run:
        return AppliedPlan(
            refusal=f"{now.plan.request.text()}: a plan with assumptions can't be applied. Plan a restart."
        )
    changed = changes(seen, now, observation)
    if changed:
        raise Outdated("The run has moved on since this plan was made. Nothing was changed; make a new plan.", changed)
    if len(now.tries) > MAX_KEYS:
        return AppliedPlan(
            refusal=f"Expected at most {MAX_KEYS} tasks to clear, found {len(now.tries)}: use the command."
        )
    access.audit({"plan_id": now.id, "asked": now.plan.request.text(), "group_id": view.journal.identity.group_id})
    with recorded_journal(view.journal) as journal:
        applied = apply_plan(journal, now.plan, who)
    resets = tuple(f"{reset.region}@{reset.attempt}" for reset in applied.resets)
    return AppliedPlan(now.id, resets, tasks_to_clear(view, applied, now, observation))


def release_attempt(
    access: Access, *, dag_id: str, run_key: str, group: str | None, who: str, asked: Mapping[str, Any]
) -> ReleasedData:
    """Delete the data of an ``attempt`` of a ``region``. Raises `Outdated` if another attempt counts, and `Refused`.

    Raises `ConfigurationError` if the results are another journal's.
    """
    check_results(access.journal, access.results)
    view = access.view_of(dag_id, run_key, group)
    hand = attempt_to_release(view, asked["region"])
    if hand.attempt.number != asked["attempt"]:
        changed = f"{asked['region']}: attempt {hand.attempt.number} counts now, not {asked['attempt']}"
        raise Outdated("The run has moved on. Nothing was changed; look at it again.", (changed,))
    check_may_go(hand, force=asked["force"])
    access.audit(asked)
    with recorded_journal(view.journal) as journal:
        deleted = release_by_hand(journal, access.results, hand, who, force=asked["force"])
    kept = kept_after_deletion(access.results) if deleted.objects else ""
    return ReleasedData.of(hand, deleted, kept)


def pin_attempt(
    access: Access, *, dag_id: str, run_key: str, group: str | None, who: str, asked: Mapping[str, Any]
) -> Pinned:
    """Pin the data of an ``attempt`` of a ``region``, or unpin them."""
    view = access.view_of(dag_id, run_key, group)
    access.audit(asked)
    change = pins.pin if asked["pinned"] else pins.unpin
    with recorded_journal(view.journal) as journal:
        return Pinned.of(change(journal, view.in_use.state, asked["region"], asked["attempt"], who, asked["why"]))


def withdraw_results(
    access: Access, *, dag_id: str, run_key: str, group: str | None, who: str, asked: Mapping[str, Any]
) -> Withdrawn:
    """Withdraw what the newest publish names of a ``region``, or give it back."""
    view = access.view_of(dag_id, run_key, group)
    access.audit(asked)
    with recorded_journal(view.journal) as journal:
        turns = withdraw(journal, asked["region"], who, asked["reason"], withdrawn=asked["withdrawn"])
    return Withdrawn.of(turns)
