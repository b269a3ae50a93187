"""The application below `API_PREFIX`: the Recovery tab, its REST API, and the endpoint by which tasks are cleared.

The compare-and-clear as an endpoint, for deployments that keep another state store backend.

Airflow authenticates the user and authorises the DAG: ``observe`` asks for reading, ``clear`` for editing its task
instances, and is written into the audit log. Imported by `plugin.LazyApp` on the first request. Response codes: 401
nobody, 403 not allowed, 404 no such run, 408 the body came too late, 410 the caller is no longer its own try, 413 the
body is too large, 415 no JSON, 422 not a request, 503 the database did not answer: ask again.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException

from airflow_recovery.airflow_compat import DagAccessEntity, GetUserDep, SessionDep, requires_access_dag
from airflow_recovery.api_server import page, rest_changes, rest_plan, rest_run
from airflow_recovery.api_server.access import MAY_ACT, MAY_CLEAR, of_every_dag, same_origin
from airflow_recovery.api_server.audit import audit
from airflow_recovery.api_server.bodies import described, json_body
from airflow_recovery.api_server.compare_and_clear import RunMissing, clear, observe
from airflow_recovery.api_server.description import describe
from airflow_recovery.api_server.rebuild import run_of_key, set_finished
from airflow_recovery.api_server.rest_errors import RESPONSES, add_error_handlers
from airflow_recovery.attempt.clear_protocol import ClearBody
from airflow_recovery.attempt.rebuild import RebuildRequest
from airflow_recovery.attempt.task_instances import ClearRequest
from airflow_recovery.errors import NotMine
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.story.question import QUESTIONS

router = APIRouter()


def make_app() -> FastAPI:
    """Make the application, with a route for each question that is registered."""
    made = FastAPI(
        title="Airflow Recovery",
        version="1",
        description="Runs as recovery sees them, plans and their execution, and the compare-and-clear that tasks use.",
        # Its pages would fetch their scripts from elsewhere; the document itself is at openapi.json.
        docs_url=None,
        redoc_url=None,
    )
    add_error_handlers(made)
    for routes in (rest_run, rest_plan, rest_changes, page):
        made.include_router(routes.router)
    made.include_router(rest_run.question_routes(QUESTIONS.values()))
    made.include_router(router)
    return made


@router.post(
    "/dags/{dag_id}/runs/{run_id}/observe",
    dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.TASK_INSTANCE)), Depends(same_origin)],
)
def observe_run(dag_id: str, run_id: str, session: SessionDep) -> dict[str, Any]:
    """All task instances of one run: an `Observation` as JSON."""
    try:
        return observe(session, dag_id, run_id).to_json()
    except RunMissing as error:
        raise HTTPException(404, str(error)) from error


Body = Annotated[dict[str, Any], Depends(json_body(dict[str, Any]))]


@router.post("/dags/{dag_id}/runs/{run_id}/clear", dependencies=MAY_CLEAR, openapi_extra=described(dict[str, Any]))
def clear_run(dag_id: str, run_id: str, body: Body, session: SessionDep, user: GetUserDep) -> dict[str, Any]:
    """Compare and clear: ``{"request": ClearRequest, "caller": {"key", "ti_id"} | null}`` -> a `ClearResult`."""
    try:
        posted = ClearBody.read(body)
        request, caller = posted.request, posted.caller
        asked = {
            "caller": None if caller is None else caller.key,
            "producers": list(request.producers),
            "consumers": list(request.consumers),
        }
        if request != ClearRequest():  # which asks for nothing, but whether one may ask
            audit(session, user.get_name(), "airflow_recovery.clear", dag_id, run_id, asked)
        return to_json(clear(session, dag_id, run_id, request, caller=caller))
    except RunMissing as error:
        raise HTTPException(404, str(error)) from error
    except NotMine as error:
        raise HTTPException(410, str(error)) from error
    except ValueError as error:
        raise HTTPException(422, str(error)) from error


@router.post("/dags/{dag_id}/rebuild", dependencies=MAY_CLEAR, openapi_extra=described(dict[str, Any]))
def rebuild_run(dag_id: str, body: Body, session: SessionDep, user: GetUserDep) -> dict[str, Any]:
    """Set the finished tasks of a re-created run to success: `RebuildRequest` -> `Rebuilt`."""
    try:
        request = from_json(RebuildRequest, body)
        if not request.dry_run:
            run_id = run_of_key(session, dag_id, request.run_key)
            audit(session, user.get_name(), "airflow_recovery.rebuild", dag_id, run_id, {"tasks": list(request.notes)})
        return to_json(set_finished(session, dag_id, request))
    except RunMissing as error:
        raise HTTPException(404, str(error)) from error
    except ValueError as error:
        raise HTTPException(422, str(error)) from error


# Who may edit the task instances of every DAG, as the user of ``[recovery] api_conn_id`` may. It changes nothing.
@router.get("/description", dependencies=[Depends(of_every_dag), *MAY_ACT[:1]], responses=RESPONSES)
def description(session: SessionDep) -> dict[str, Any]:
    """Versions, the state store back end, ``[recovery]``'s places, and the clocks of server and database."""
    return describe(session)


app = make_app()
