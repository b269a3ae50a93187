"""``POST``: let the data of a region go, and before that: what is given up."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT, MAY_ASK
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.changes import ReleasedAttempt, release_attempt
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import audited_change, read
from airflow_recovery.api_server.plan_readings import read_release_plan
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.story.release_preview import ReleasePreview

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


@router.post(
    "/dags/{dag_id}/runs/{run_id}/release/plan",
    dependencies=MAY_ASK,
    response_model=ReleasePreview,
    openapi_extra=described(Which),
)
def plan_release(
    dag_id: str,
    run_id: str,
    which: Annotated[Which, Depends(json_body(Which))],
    session: SessionDep,
    group: Group = None,
) -> Any:
    """What could no longer be recovered without running again. Changes nothing."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    return read(read_release_plan, dag_id=dag_id, run_key=row.run_key, group=group, region=which.region)


@router.post("/dags/{dag_id}/runs/{run_id}/release", dependencies=MAY_ACT, openapi_extra=described(Release))
def release(
    dag_id: str,
    run_id: str,
    which: Annotated[Release, Depends(json_body(Release))],
    session: SessionDep,
    user: GetUserDep,
    group: Group = None,
) -> ReleasedData:
    """Delete the data of one attempt. A user's own output location is never deleted.

    409 where it is still needed, without ``force``.
    """
    deleted: ReleasedAttempt = audited_change(
        release_attempt,
        "airflow_recovery.release",
        session,
        user.get_name(),
        dag_id=dag_id,
        run_id=run_id,
        group=group,
        asked=which.model_dump(),
    )
    return ReleasedData(
        region=which.region,
        attempt=deleted.attempt,
        files=deleted.files,
        bytes=deleted.bytes,
        pinned_by=deleted.readers,
        kept_after_deletion=deleted.kept_after_deletion,
    )
