"""Whether a result is kept although code that it depends on can't be seen (docs/fingerprint.md#code-that-cant-be-seen).

A valid result of such code is kept when a task is retried, and when recovery or a backfill clears it. After a person's
clear the task runs once. Its claim records the clear (`Claim.max_tries`), so later tries keep what it makes.
"""

from __future__ import annotations

from airflow_recovery.attempt.run import Run
from airflow_recovery.model.components import UnseenCode, unseen_in
from airflow_recovery.model.records import Claim

BACKFILL = "backfill"
_MOST_NAMED = 3


def why_unseen_code_runs(run: Run, region: str, attempt: int, policy: UnseenCode) -> str | None:
    """Return why the valid result of ``attempt`` is not kept; `None`: it is.

    Reads the claim of the attempt, but only if code is unseen and the task was cleared. Raises the store's errors.
    """
    unseen = unseen_in(run.components_of(region))
    if policy is UnseenCode.KEEP or not unseen or not _may_have_been_cleared(run, policy):
        return None
    if not _was_cleared_since(run, run.journal.read_claim(region, attempt), policy):
        return None
    names = ", ".join(component.name for component in unseen[:_MOST_NAMED])
    more = f" and {len(unseen) - _MOST_NAMED} more" if len(unseen) > _MOST_NAMED else ""
    return f"attempt {attempt} is older than the clear of this task, and {names}{more} may have changed unseen"


def _may_have_been_cleared(run: Run, policy: UnseenCode) -> bool:
    grant = run.task.grant
    if policy is UnseenCode.RUN:
        return True
    is_backfill = run.dag_run is not None and run.dag_run.run_type == BACKFILL
    return grant is not None and grant.is_renewed and not is_backfill


def _was_cleared_since(run: Run, claim: Claim, policy: UnseenCode) -> bool:
    task = run.task
    if task.grant is None:
        return policy is UnseenCode.RUN and claim.ti_id != task.ti_id
    if claim.airflow_run_id != task.airflow_run_id or claim.max_tries != task.grant.max_tries:
        return claim.max_tries is not None or policy is UnseenCode.RUN
    # A clear by recovery itself begins no grant.
    return policy is UnseenCode.RUN and claim.try_number <= max(task.grant.cancelled, default=0)
