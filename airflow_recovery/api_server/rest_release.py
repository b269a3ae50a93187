"""``POST``: let the data of a region go, and before that: what is given up."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT, MAY_ASK
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import deployment_results, deployment_stores, evaluation_of, view_of
from airflow_recovery.api_server.rest_errors import RESPONSES, Outdated
from airflow_recovery.api_server.rest_plan import Group, not_asked_warnings
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.attempt.manual_release import check_may_go, release_by_hand
from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.store.lifecycle import kept_after_deletion
from airflow_recovery.story.release_preview import ReleasePreview, attempt_to_release, preview_release

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


class Which(BaseModel):
    """The region whose data is to go."""

    model_config = ConfigDict(extra="forbid")

    region: str


class WhichAttempt(Which):
    """``attempt``: the one that was shown. Where another one counts by now, nothing is released."""

    attempt: int


class Release(WhichAttempt):
    """``force``: also what is still needed, a final result among it; `ReleasePreview.still_needed`."""

    force: bool = False


class ReleasedData(BaseModel):
    """What was deleted. ``pinned_by``: somebody began to read it meanwhile; its data goes with the next ``gc``.

    ``kept_after_deletion``: why deleted objects stay readable in this store, or may; empty if they are gone.
    """

    region: str
    attempt: int
    files: int
    bytes: int
    pinned_by: str
    kept_after_deletion: str


@router.post("/dags/{dag_id}/runs/{run_id}/release/plan", dependencies=MAY_ASK)
def plan_release(dag_id: str, run_id: str, which: Which, session: SessionDep, group: Group = None) -> ReleasePreview:
    """What could no longer be recovered without running again. Changes nothing."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    preview = preview_release(view, evaluation_of(deployment_stores(), view), which.region)
    return replace(preview, warnings=(*preview.warnings, *not_asked_warnings(view)))


@router.post("/dags/{dag_id}/runs/{run_id}/release", dependencies=MAY_ACT)
def release(
    dag_id: str, run_id: str, which: Release, session: SessionDep, user: GetUserDep, group: Group = None
) -> ReleasedData:
    """Delete the data of one attempt. A user's own output location is never deleted.

    409 where it is still needed, without ``force``.
    """
    who = user.get_name()
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    hand = attempt_to_release(view, which.region)
    if hand.attempt.number != which.attempt:
        changed = f"{which.region}: attempt {hand.attempt.number} counts now, not {which.attempt}"
        raise Outdated("The run has moved on. Nothing was changed; look at it again.", (changed,))
    check_may_go(hand, force=which.force)
    audit(session, who, "airflow_recovery.release", dag_id, run_id, which.model_dump())
    session.close()
    results = deployment_results()
    with recorded_journal(view.journal) as journal:
        deleted = release_by_hand(journal, results, hand, who, force=which.force)
    return ReleasedData(
        region=which.region,
        attempt=hand.attempt.number,
        files=deleted.objects,
        bytes=deleted.size,
        pinned_by=deleted.readers,
        kept_after_deletion=kept_after_deletion(results) if deleted.objects else "",
    )
