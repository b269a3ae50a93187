"""``GET``: a run as it is, the last runs of a DAG, and the questions (`airflow_recovery.story.question`).

Equal requests at the same time share one reading (`airflow_recovery.api_server.shared_reads`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Response
from pydantic.dataclasses import dataclass

from airflow_recovery.airflow_compat import GetUserDep, create_session
from airflow_recovery.api_server.access import MAY_READ, may_act
from airflow_recovery.api_server.compare_and_clear import observe
from airflow_recovery.api_server.dag_runs import RunRow, find_dag_run, newest_dag_runs
from airflow_recovery.api_server.journals import read
from airflow_recovery.api_server.places import Who
from airflow_recovery.api_server.readings import (
    KnownRun,
    RunRead,
    RunsAnswer,
    Tries,
    read_answer,
    read_regions,
    read_run,
    read_runs,
)
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.shared_reads import kept_documents, shared_reads
from airflow_recovery.api_server.store_routes import JSON, StoreRoute
from airflow_recovery.journal.journal import without_garbage_collection
from airflow_recovery.story.asked import AskedDag
from airflow_recovery.story.question import Argument, MayAsk, Question
from airflow_recovery.story.region_status import RegionStatus
from airflow_recovery.story.run_document import RegionPage, RunDocument
from airflow_recovery.story.run_story import MAX_REGIONS

MAX_RUNS = 50

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


@dataclass(frozen=True)
class RunAnswer:
    """A run, and whether the user may act on it. ``version`` changes with whatever is in ``run``."""

    version: str
    can_act: bool
    run: RunDocument


@router.get(
    "/dags/{dag_id}/runs/{run_id}",
    dependencies=MAY_READ,
    response_model=RunAnswer,
    responses={304: {"description": "As it was"}},
)
async def get_run(
    dag_id: str,
    run_id: str,
    user: GetUserDep,
    group: Group = None,
    if_none_match: Annotated[str | None, Header(description='``"<version>"`` of an earlier answer')] = None,
) -> Response:
    """Everything that is known of a run: regions, what they read, attempts, history, and the time that was saved."""
    can_act = await anyio.to_thread.run_sync(may_act, user, dag_id)
    row, tries = await _known(user, dag_id, run_id)
    key = (dag_id, "run", run_id, group)
    known = kept_documents.get(key)

    def work() -> Any:
        asked: dict[str, Any] = {"run_id": run_id, "run_key": row.run_key, "run_state": row.state, "group": group}
        return read(read_run, tries, dag_id=dag_id, known=known and known[0], **asked)

    def finish(found: RunRead) -> tuple[str, bytes]:
        if found.document is None:
            assert known is not None
            return known
        kept_documents.put(key, found.version, found.document)
        return found.version, found.document

    who = Who(user.get_name(), dag_id)
    read_version, document = await shared_reads.answer(who, (*key, row.state, tries.digest), work, finish)
    version = f"{read_version}-{'acts' if can_act else 'reads'}"
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache"}
    if if_none_match == f'"{version}"':
        return Response(status_code=304, headers=headers)
    head = f'{{"version":"{version}","can_act":{"true" if can_act else "false"},"run":'
    return Response(head.encode() + document + b"}", headers=headers, media_type=JSON)


@router.get("/dags/{dag_id}/runs/{run_id}/regions", dependencies=MAY_READ, response_model=RegionPage)
async def get_regions(  # noqa: PLR0913 - a parameter each
    dag_id: str,
    run_id: str,
    user: GetUserDep,
    group: Group = None,
    of: Annotated[str | None, Query(description="the subtasks of this region")] = None,
    status: RegionStatus | None = None,
    search: Annotated[str, Query(description="text in the names")] = "",
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_REGIONS)] = 100,
) -> Response:
    """Some regions of a run, one by one: those of a large run that `get_run` tells of as one."""

    row, tries = await _known(user, dag_id, run_id)
    asked: dict[str, Any] = {
        "group": group,
        "of": of,
        "status": status,
        "search": search,
        "offset": offset,
        "limit": limit,
    }
    key = ("regions", run_id, *asked.values(), tries.digest)
    return await _shared(
        user, dag_id, key, lambda: read(read_regions, tries, dag_id=dag_id, run_key=row.run_key, **asked)
    )


@router.get("/dags/{dag_id}/runs", dependencies=MAY_READ, response_model=RunsAnswer)
async def get_runs(dag_id: str, user: GetUserDep, limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 10) -> Response:
    """The newest runs of a DAG, with how many regions are in which status. A run that can't be read says why."""

    def work() -> Any:
        with create_session(scoped=False) as session, without_garbage_collection():
            runs = [
                KnownRun(
                    row.run_id, row.run_key, row.state, row.run_after, Tries.of(observe(session, dag_id, row.run_id))
                )
                for row in newest_dag_runs(session, dag_id, limit)
            ]
        return read(read_runs, dag_id=dag_id, runs=runs)

    return await _shared(user, dag_id, ("runs", limit), work)


@dataclass(frozen=True)
class QuestionView:
    """A question with a button. ``path``: the last part of its route. ``requires``: names of its required arguments."""

    name: str
    path: str
    label: str
    help: str
    about: Literal["run", "dag"]
    requires: list[str]


@dataclass(frozen=True)
class QuestionsAnswer:
    """The questions for which the tab has a button."""

    questions: list[QuestionView]


def question_routes(questions: Iterable[Question]) -> APIRouter:
    """Return a route for each question that users of Airflow may ask, and one that lists those with a label."""
    views = {question: _view_of(question) for question in questions if question.who is MayAsk.READERS}
    listed = QuestionsAnswer([view for view in views.values() if view.label])
    routes = APIRouter(responses=RESPONSES, route_class=StoreRoute)

    # The path names a DAG, so that every user who may see the tab may read the list.
    @routes.get("/dags/{dag_id}/questions", dependencies=MAY_READ, response_model=QuestionsAnswer)
    async def get_questions(dag_id: str) -> QuestionsAnswer:
        """The questions for which the tab has a button."""
        return listed

    for question, view in views.items():
        routes.add_api_route(
            f"/dags/{{dag_id}}{'' if view.about == 'dag' else '/runs/{run_id}'}/{view.path}",
            _endpoint(question),
            name=f"get_{question.name}",
            description=question.help,
            dependencies=MAY_READ,
            response_model=question.shape.answer,
        )
    return routes


def _endpoint(question: Question) -> Callable[..., Coroutine[Any, Any, Response]]:
    """Return the function that FastAPI calls for each request, with the question's arguments as parameters."""

    async def ask(dag_id: str, user: Any, group: str | None, run_id: str | None = None, **arguments: Any) -> Response:
        def work() -> Any:
            run: dict[str, Any] = {} if run_id is None else {"run_key": _run_key(dag_id, run_id)}
            return read(read_answer, question=question, dag_id=dag_id, group=group, arguments=arguments, **run)

        return await _shared(user, dag_id, (question.name, run_id, group, *arguments.values()), work)

    arguments = question.shape.arguments
    run = {} if question.shape.reads is AskedDag else {"run_id": str}
    kinds: dict[str, Any] = {"dag_id": str, **run, "user": GetUserDep, "group": Group}
    kinds |= {argument.parameter: _query(argument) for argument in arguments}
    defaults = {argument.parameter: argument.default for argument in arguments if not argument.is_required}
    defaults["group"] = None
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=kind,
            default=defaults.get(name, inspect.Parameter.empty),
        )
        for name, kind in kinds.items()
    ]
    ask.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return ask


def _query(argument: Argument) -> Any:
    kind: Any = Literal[tuple(argument.given.choices)] if argument.given.choices else argument.kind
    most = 1000 if kind is str else None
    if argument.default is None and not argument.is_required:
        kind = kind | None
    return Annotated[kind, Query(alias=argument.name, description=argument.given.help, max_length=most)]


def _view_of(question: Question) -> QuestionView:
    about: Literal["run", "dag"] = "dag" if question.shape.reads is AskedDag else "run"
    requires = [argument.name for argument in question.shape.arguments if argument.is_required]
    path = question.path or question.name
    return QuestionView(question.name, path, question.label, question.help, about, requires)


async def _known(user: Any, dag_id: str, run_id: str) -> tuple[RunRow, Tries]:
    """Return the run and its task instances from Airflow's database. Requests at the same time share the query."""

    def work() -> tuple[RunRow, Tries]:
        with create_session(scoped=False) as session, without_garbage_collection():
            return find_dag_run(session, dag_id, run_id), Tries.of(observe(session, dag_id, run_id))

    found: tuple[RunRow, Tries] = await shared_reads.answer(
        Who(user.get_name(), dag_id), (dag_id, "tries", run_id), work
    )
    return found


def _run_key(dag_id: str, run_id: str) -> str:
    with create_session(scoped=False) as session:
        return find_dag_run(session, dag_id, run_id).run_key


async def _shared(user: Any, dag_id: str, asked: tuple[Any, ...], work: Callable[[], Any]) -> Response:
    body = await shared_reads.answer(Who(user.get_name(), dag_id), (dag_id, *asked), work)
    return Response(body, media_type=JSON)
