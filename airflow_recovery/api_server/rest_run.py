"""``GET``: a run as it is, the loss ledgers of its channels, the last runs of a DAG, and what they cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response
from pydantic.dataclasses import dataclass

from airflow_recovery.advice.advising import advise
from airflow_recovery.advice.history import history_of
from airflow_recovery.airflow_compat import GetUserDep, SessionDep
from airflow_recovery.api_server.access import MAY_READ, may_act
from airflow_recovery.api_server.compare_and_clear import observe
from airflow_recovery.api_server.dag_runs import RunRow, find_dag_run, newest_dag_runs
from airflow_recovery.api_server.journals import (
    deployment_journal,
    deployment_stores,
    journal_of,
    version_of,
    view_of,
)
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.attempt.task_instances import Observation
from airflow_recovery.errors import JournalError
from airflow_recovery.journal.sharded_listing import list_whole
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.compared_components import ComparedComponents, compared_components
from airflow_recovery.story.mode import ChannelView, story_modes
from airflow_recovery.story.past_runs import past_runs
from airflow_recovery.story.region_status import RegionStatus
from airflow_recovery.story.run_costs import (
    RegionCost,
    RunCost,
    kept_in,
    most_repeated,
    region_costs,
    run_cost,
    slowest,
)
from airflow_recovery.story.run_document import RegionPage, RunDocument, region_page, run_document
from airflow_recovery.story.run_lookup import groups_of
from airflow_recovery.story.run_story import MAX_REGIONS
from airflow_recovery.story.run_view import view_run

MAX_RUNS = 50
ADVISED_BY = 10

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


@dataclass(frozen=True)
class RunAnswer:
    """A run, and whether the user may act on it. ``version`` changes with whatever is in ``run``."""

    version: str
    can_act: bool
    run: RunDocument


@dataclass(frozen=True)
class GroupSummary:
    """One group of a run. ``problem``: why its journal could not be read; then the rest is empty."""

    group_id: str
    statuses: dict[str, int]
    regions: int
    seconds_saved: float
    problem: str | None = None


@dataclass(frozen=True)
class RunSummary:
    """One run. No groups: nothing of it is recorded."""

    run_id: str
    run_key: str
    state: str | None
    run_after: str | None
    groups: list[GroupSummary]


@dataclass(frozen=True)
class RunsAnswer:
    """The newest runs of a DAG, the newest first."""

    dag_id: str
    runs: list[RunSummary]


@dataclass(frozen=True)
class AdviceAnswer:
    """Which results to write and which not, in one line; `airflow recovery advise` says the rest.

    ``costs``: of each run that can be read, the oldest first; ``slowest`` and ``repeated``: regions over these runs.
    ``notes``: which runs can't be read, and why, each in a sentence.
    """

    dag_id: str
    group_id: str
    runs: int
    first_line: str
    costs: list[RunCost]
    slowest: list[RegionCost]
    repeated: list[RegionCost]
    notes: list[str]


@dataclass(frozen=True)
class ChannelsAnswer:
    """The channels of a run; most runs have none."""

    channels: list[ChannelView]


@router.get("/dags/{dag_id}/runs/{run_id}", dependencies=MAY_READ, responses={304: {"description": "As it was"}})
def get_run(
    dag_id: str,
    run_id: str,
    session: SessionDep,
    user: GetUserDep,
    response: Response,
    group: Group = None,
    if_none_match: Annotated[str | None, Header(description='``"<version>"`` of an earlier answer')] = None,
) -> RunAnswer:
    """Everything that is known of a run: regions, what they read, attempts, history, and the time that was saved."""
    row, tries, can_act = find_dag_run(session, dag_id, run_id), observe(session, dag_id, run_id), may_act(user, dag_id)
    session.close()  # the connection serves others while the store is asked
    store = deployment_journal()
    groups = groups_of(store, dag_id, row.run_key)
    journal = journal_of(store, dag_id, row.run_key, group, groups)
    listed = list(list_whole(store, journal.layout, journal.recorded_regions))
    version = version_of(journal, listed, tries, row.state, str(can_act), *groups)
    headers = {"ETag": f'"{version}"', "Cache-Control": "private, no-cache"}
    if if_none_match == f'"{version}"':
        return Response(status_code=304, headers=headers)  # type: ignore[return-value]
    response.headers.update(headers)
    others = tuple(group for group in groups if group != journal.identity.group_id)
    view = view_run(journal, listed)
    return RunAnswer(
        version, can_act, run_document(view, run_id=run_id, run_state=row.state, observation=tries, others=others)
    )


@router.get("/dags/{dag_id}/runs/{run_id}/regions", dependencies=MAY_READ)
def get_regions(  # noqa: PLR0913 - a parameter each
    dag_id: str,
    run_id: str,
    session: SessionDep,
    group: Group = None,
    of: Annotated[str | None, Query(description="the subtasks of this region")] = None,
    status: RegionStatus | None = None,
    search: Annotated[str, Query(description="text in the names")] = "",
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_REGIONS)] = 100,
) -> RegionPage:
    """Some regions of a run, one by one: those of a large run that `get_run` tells of as one."""
    row, tries = find_dag_run(session, dag_id, run_id), observe(session, dag_id, run_id)
    session.close()
    view = view_of(dag_id, row.run_key, group)
    return region_page(view, tries, of=of, status=status, search=search, offset=offset, limit=limit)


@router.get("/dags/{dag_id}/runs/{run_id}/why", dependencies=MAY_READ)
def get_why(
    dag_id: str,
    run_id: str,
    session: SessionDep,
    region: Annotated[str, Query(max_length=1000)],
    group: Group = None,
) -> ComparedComponents:
    """What the newest attempt of a region was made of, and the attempt before it: code, settings, arguments."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    return compared_components(view_of(dag_id, row.run_key, group), region)


# Apart from the run itself: the logs of its channels may be long.
@router.get("/dags/{dag_id}/runs/{run_id}/channels", dependencies=MAY_READ)
def get_channels(dag_id: str, run_id: str, session: SessionDep, group: Group = None) -> ChannelsAnswer:
    """Of each channel of the run, in each of its generations: what is committed, lost, and not known."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    store = deployment_journal()
    journal = journal_of(store, dag_id, row.run_key, group, groups_of(store, dag_id, row.run_key))
    results = deployment_stores().results
    return ChannelsAnswer([ledger for mode in story_modes() for ledger in mode.ledgers(results, journal)])


@router.get("/dags/{dag_id}/runs", dependencies=MAY_READ)
def get_runs(dag_id: str, session: SessionDep, limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 10) -> RunsAnswer:
    """The newest runs of a DAG, with how many regions are in which status. A run that can't be read says why."""
    rows = [(row, observe(session, dag_id, row.run_id)) for row in newest_dag_runs(session, dag_id, limit)]
    session.close()
    store = deployment_journal()
    return RunsAnswer(dag_id, [_summary(store, dag_id, row, tries) for row, tries in rows])


@router.get("/dags/{dag_id}/advice", dependencies=MAY_READ)
def get_advice(dag_id: str, group: Group = None) -> AdviceAnswer:
    """What the newest `ADVISED_BY` runs cost and saved, and what `airflow recovery advise` says of them first."""
    store = deployment_journal()
    past = past_runs(store, dag_id, group, ADVISED_BY)
    advice = advise(history_of(past.runs))
    costs = [run_cost(run, kept_in(store, RunIdentity(dag_id, run.run_key, past.group_id), run)) for run in past.runs]
    regions = region_costs(past.runs)
    return AdviceAnswer(
        dag_id,
        past.group_id,
        advice.runs,
        advice.first_line(),
        costs,
        slowest(regions),
        most_repeated(regions),
        past.notes,
    )


def _summary(store: ObjectStore, dag_id: str, row: RunRow, tries: Observation) -> RunSummary:
    groups = groups_of(store, dag_id, row.run_key)
    summaries = [_group(store, dag_id, row, tries, group, groups) for group in groups]
    return RunSummary(row.run_id, row.run_key, row.state, row.run_after, summaries)


def _group(
    store: ObjectStore, dag_id: str, row: RunRow, tries: Observation, group: str, groups: list[str]
) -> GroupSummary:
    try:
        view = view_run(journal_of(store, dag_id, row.run_key, group, groups))
        document = run_document(view, run_id=row.run_id, run_state=row.state, observation=tries)
    except JournalError as error:
        # The others can be read: a store that gives no answer is another matter, and raised.
        return GroupSummary(group, {}, 0, 0.0, " ".join(str(error).split()))
    return GroupSummary(group, document.statuses, sum(document.statuses.values()), document.saved.seconds_saved)
