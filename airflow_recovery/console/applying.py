"""Have a plan applied: write the resets into the journal, and clear the tasks in Airflow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.console.deployment import Deployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.plan import Plan
from airflow_recovery.story.clearing import Cleared, task_keys
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class Done:
    """What was done. ``document`` is the same for a program."""

    code: ExitCode
    text: str
    document: dict[str, Any]


def clear_tasks(
    deployment: Deployment,
    view: RunView,
    asked_run: str,
    regions: Iterable[RegionPlan],
    unless_running: Iterable[RegionPlan] = (),
    *,
    dry_run: bool = False,
) -> Cleared:
    """Clear the tasks of ``regions``, and those of ``unless_running`` that have ended.

    ``asked_run`` is the run as the user has named it. A dry run clears nothing, and has `None` for what was cleared.
    """
    identity = view.journal.identity
    keys, others = task_keys(identity, regions), task_keys(identity, unless_running)
    run_id = view.airflow_run_id(asked_run)
    if dry_run:
        return Cleared(run_id, keys, None)
    if not keys and not others:
        return Cleared(run_id, keys, ())
    return Cleared(run_id, keys, deployment.clear(identity.dag_id, run_id, keys, unless_running=others))


def code_of(cleared: Cleared) -> ExitCode:
    """The exit code of a command that clears tasks."""
    return ExitCode.CLEAR_BY_HAND if cleared.cleared is None else ExitCode.DONE


def apply_and_clear(deployment: Deployment, view: RunView, plan: Plan, asked_run: str) -> Done:
    """Write the resets of ``plan`` and clear its tasks. Raises `PlanOutdated`; then nothing was changed.

    ``asked_run`` is the run as the user has named it. If there is no way into Airflow, the text says how to clear.
    """
    with recorded_journal(view.journal) as journal:
        applied = apply_plan(journal, plan, user_name())
    regions = view.in_use.plan.by_name
    at_work = [regions[name] for name in applied.at_work]
    cleared = clear_tasks(deployment, view, asked_run, [regions[name] for name in applied.clear], at_work)
    written = ", ".join(f"{reset.region}@{reset.attempt}" for reset in applied.resets) or "nothing had to be reset"
    return Done(
        code_of(cleared),
        f"Reset: {written}.\n{cleared.text(view.journal.identity)}",
        {"resets": [[reset.region, reset.attempt] for reset in applied.resets], **asdict(cleared)},
    )
