"""``GET``: the loss ledgers of a run that has channels. Apart from the run itself: their logs may be long."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic.dataclasses import dataclass

from airflow_recovery.airflow_compat import SessionDep
from airflow_recovery.api_server.access import MAY_READ
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import deployment_journal, deployment_stores, journal_of
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.story.mode import ChannelView, story_modes
from airflow_recovery.story.run_lookup import groups_of

router = APIRouter(responses=RESPONSES, route_class=StoreRoute)


@dataclass(frozen=True)
class ChannelsAnswer:
    """Most runs have no channel."""

    channels: list[ChannelView]


@router.get("/dags/{dag_id}/runs/{run_id}/channels", dependencies=MAY_READ)
def get_channels(dag_id: str, run_id: str, session: SessionDep, group: Group = None) -> ChannelsAnswer:
    """Of each channel, in each of its generations, what is committed, lost, and not known."""
    row = find_dag_run(session, dag_id, run_id)
    session.close()
    store = deployment_journal()
    journal = journal_of(store, dag_id, row.run_key, group, groups_of(store, dag_id, row.run_key))
    results = deployment_stores().results
    return ChannelsAnswer([ledger for mode in story_modes() for ledger in mode.ledgers(results, journal)])
