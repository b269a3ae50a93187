"""Having a plan done: the resets into the journal, the clears into Airflow, and what is said of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_recovery.attempt.apply_plan import apply_plan
from airflow_recovery.console.deployment import Deployment
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.user import user_name
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.planning.plan import Plan
from airflow_recovery.story.clearing import clear_text, task_keys
from airflow_recovery.story.run_view import RunView


@dataclass(frozen=True)
class Done:
    """What was done. ``document`` is the same for a program."""

    code: ExitCode
    text: str
    document: dict[str, Any]


def apply_and_clear(deployment: Deployment, view: RunView, plan: Plan, asked_run: str) -> Done:
    """Write the resets of ``plan`` and clear its tasks. Raises `PlanOutdated`; then nothing was changed.

    ``asked_run`` is the run as the person named it. Where there is no way into Airflow, the text says how to clear.
    """
    with recorded_journal(view.journal) as journal:
        applied = apply_plan(journal, plan, user_name())
    identity = view.journal.identity
    regions = view.in_use.plan.by_name
    keys = task_keys(identity, [regions[name] for name in applied.clear])
    at_work = task_keys(identity, [regions[name] for name in applied.at_work])
    run_id = view.airflow_run_id(asked_run)
    cleared: Sequence[str] | None = ()
    if keys or at_work:
        cleared = deployment.clear(identity.dag_id, run_id, keys, unless_running=at_work)
    written = ", ".join(f"{reset.region}@{reset.attempt}" for reset in applied.resets) or "nothing had to be reset"
    rest = clear_text(identity, run_id, keys) if cleared is None else f"Cleared: {', '.join(cleared) or 'nothing'}."
    resets = [[reset.region, reset.attempt] for reset in applied.resets]
    return Done(
        ExitCode.CLEAR_BY_HAND if cleared is None else ExitCode.DONE,
        f"Reset: {written}.\n{rest}",
        {"resets": resets, "airflow_run_id": run_id, "clear": keys, "cleared": cleared},
    )
