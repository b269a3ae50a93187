"""``POST``: let the data of a region go, and before that: what is given up."""

from __future__ import annotations

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from airflow_recovery.journal.recorded import recorded_journal
from airflow_recovery.plugins.access import MAY_ACT, MAY_ASK, audit
from airflow_recovery.plugins.dag_runs import find_dag_run
from airflow_recovery.plugins.journals import deployment_results, deployment_stores, prober_of, view_of
from airflow_recovery.plugins.rest_errors import RESPONSES, Outdated
from airflow_recovery.plugins.rest_plan import Group
from airflow_recovery.shuffle.release import Releaser
from airflow_recovery.view.release_preview import ReleasePreview, attempt_to_release, preview_release

router = APIRouter(responses=RESPONSES)


class Which(BaseModel):
    """The region whose data is to go."""

    model_config = ConfigDict(extra="forbid")

    region: str


class WhichAttempt(Which):
    """``attempt``: the one that was shown. Where another one counts by now, nothing is released."""

    attempt: int


class ReleasedData(BaseModel):
    """What was deleted. ``pinned_by``: somebody began to read it meanwhile; its data goes with the next ``gc``."""

    region: str
    attempt: int
    files: int
    bytes: int
    pinned_by: str


@router.post("/dags/{dag_id}/runs/{run_id}/release/plan", dependencies=MAY_ASK)
def plan_release(dag_id: str, run_id: str, which: Which, session: SessionDep, group: Group = None) -> ReleasePreview:
    """What could no longer be recovered without running again. Changes nothing."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    return preview_release(view, prober_of(deployment_stores(), view), which.region)


@router.post("/dags/{dag_id}/runs/{run_id}/release", dependencies=MAY_ACT)
def release(
    dag_id: str, run_id: str, which: WhichAttempt, session: SessionDep, user: GetUserDep, group: Group = None
) -> ReleasedData:
    """Delete the data of one attempt. A user's own output location is never deleted."""
    who = user.get_name()
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    current = attempt_to_release(view, which.region)
    if current.number != which.attempt:
        changed = f"{which.region}: attempt {current.number} counts now, not {which.attempt}"
        raise Outdated("The run has moved on. Nothing was changed; look at it again.", (changed,))
    audit(session, who, "airflow_recovery.release", dag_id, run_id, {"region": which.region, "attempt": which.attempt})
    session.close()
    with recorded_journal(view.journal) as journal:
        deleted = Releaser(journal, deployment_results(), who=who).release(which.region, current)
    return ReleasedData(
        region=which.region,
        attempt=current.number,
        files=deleted.objects,
        bytes=deleted.size,
        pinned_by=deleted.pinned_by,
    )
