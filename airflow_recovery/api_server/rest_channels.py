"""``GET``: the loss ledgers of a run that has channels. Apart from the run itself: their logs may be long."""

from __future__ import annotations

from functools import lru_cache, partial

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import APIRouter
from pydantic.dataclasses import dataclass

from airflow_recovery.api_server.access import MAY_READ
from airflow_recovery.api_server.dag_runs import find_dag_run
from airflow_recovery.api_server.journals import deployment_journal, deployment_stores, journal_of
from airflow_recovery.api_server.rest_errors import RESPONSES
from airflow_recovery.api_server.rest_plan import Group
from airflow_recovery.api_server.store_routes import StoreRoute
from airflow_recovery.errors import JournalError
from airflow_recovery.journal.journal import Journal
from airflow_recovery.story.channels import ChannelView, LedgerReader, channels_of
from airflow_recovery.story.run_lookup import groups_of
from airflow_recovery.story.run_view import view_run
from airflow_recovery.streaming.channel_records import ChannelIdentity
from airflow_recovery.streaming.run_channels import run_channels

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
    return ChannelsAnswer(
        list(channels_of(deployment_stores().results, journal.identity, _reader, partial(_counting, journal)))
    )


def _counting(journal: Journal) -> set[tuple[str, int]] | None:
    """Generations that count; `None` where the records can't be read: the logs can all the same."""
    try:
        in_use = view_run(journal).in_use
    except JournalError:
        return None
    return {(each.edge, each.generation) for each in run_channels(in_use.plan, in_use.state) if each.counts}


@lru_cache(maxsize=256)
def _reader(identity: ChannelIdentity) -> LedgerReader:
    """What this process has read of a channel; with what is forgotten nothing is lost but time."""
    return LedgerReader(deployment_stores().results, identity)
