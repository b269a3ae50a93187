"""``POST``: release the data of an attempt, pin them, or withdraw what is published; and what a release gives up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_ACT, MAY_ASK
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.changes import pin_attempt, release_attempt, withdraw_results
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import change, read
from airflow_recovery.api_server.plan_readings import read_release_plan
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.story.changed import Pinned, ReleasedData, Withdrawn
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


class Pin(WhichAttempt):
    """``pinned``: pin it, or unpin it. ``why`` is for whoever wants the room one day."""

    pinned: bool = True
    why: str = Field("pinned on the Recovery tab", max_length=1000)


class Withdraw(BaseModel):
    """``region``: a region, a task or a result; without it, everything that is published. ``reason``: readers get it.

    ``withdrawn`` False gives the results back.
    """

    model_config = ConfigDict(extra="forbid")

    region: str | None = Field(None, max_length=1000)
    withdrawn: bool = True
    reason: str = Field(min_length=1, max_length=1000)


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


def _add_route(event: str, body: type[BaseModel], function: Callable[..., Any], answer: type, description: str) -> None:
    """Add the route of a change. ``function`` is one of `changes`. ``event``: its name in Airflow's audit log."""

    def route(dag_id: str, run_id: str, which: Any, session: SessionDep, user: GetUserDep, group: Group = None) -> Any:
        row, who = find_dag_run(session, dag_id, run_id), user.get_name()
        session.close()  # the connection serves others while the store is asked
        return change(
            function,
            lambda said: audit(session, who, event, dag_id, run_id, dict(said)),
            dag_id=dag_id,
            run_key=row.run_key,
            group=group,
            who=who,
            asked=which.model_dump(),
        )

    name = event.rpartition(".")[2]
    route.__name__, route.__doc__ = name, description
    route.__annotations__ |= {"which": Annotated[body, Depends(json_body(body))], "return": answer}
    path = f"/dags/{{dag_id}}/runs/{{run_id}}/{name}"
    router.post(path, dependencies=MAY_ACT, openapi_extra=described(body))(route)


_add_route(
    "airflow_recovery.release",
    Release,
    release_attempt,
    ReleasedData,
    "Delete the data of one attempt. A user's own output location is never deleted. 409 where it is still needed, "
    "without ``force``.",
)
_add_route(
    "airflow_recovery.pin",
    Pin,
    pin_attempt,
    Pinned,
    "Pin the data of one attempt, or unpin them. Twice is once.",
)
_add_route(
    "airflow_recovery.withdraw",
    Withdraw,
    withdraw_results,
    Withdrawn,
    "Withdraw what the newest publish names, or give it back. Twice is once.",
)
