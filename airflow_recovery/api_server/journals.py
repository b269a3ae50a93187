"""The journals of this deployment, as the API server reads them for people."""

from __future__ import annotations

import hashlib
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING

from airflow_recovery.api_server.budget import BudgetedStore
from airflow_recovery.errors import NothingRecorded
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, Timeouts, open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.owner import check_owner, check_results
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.story import what_if
from airflow_recovery.story.run_lookup import groups_of
from airflow_recovery.story.run_view import RunView, view_run

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_recovery.attempt.task_instances import Observation
    from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

TIMEOUTS = Timeouts(connect_s=2.0, read_s=5.0, read_attempts=1)
"""People ask again by themselves, and few requests may wait at once (`airflow_recovery.api_server.store_routes`)."""

REQUEST_BYTES = 256 * 1024 * 1024
"""Of a journal, for one request: some hundred times what the largest runs that were tried have."""


@lru_cache(maxsize=1)
def deployment_stores() -> Stores:
    """Once for this process: connections to S3 are kept. Raises `ConfigurationError` where no journal is set."""
    return open_stores(RecoverySettings.load(), TIMEOUTS)


@lru_cache(maxsize=1)
def deployment_name() -> str | None:
    """``[recovery] deployment`` as this API server has it; read once for this process."""
    return RecoverySettings.load().deployment


def deployment_journal() -> ObjectStore:
    """The store of all journals, which belongs to this deployment, as its tasks see to it (fault 82); for one request.

    No more than `REQUEST_BYTES` are read from it: what a person opens must not take the API server's memory. Raises
    `ConfigurationError` where it is another one's: its runs are not ours to show under our names, or to restart.
    """
    store = deployment_stores().journal
    check_owner(store, deployment_name() or "")
    return BudgetedStore(store, REQUEST_BYTES)


def deployment_results() -> ObjectStore:
    """The store of all results, to delete from. Raises `ConfigurationError` where they are another journal's."""
    stores = deployment_stores()
    check_results(stores.journal, stores.results)
    return stores.results


def journal_of(store: ObjectStore, dag_id: str, run_key: str, group_id: str | None, groups: list[str]) -> Journal:
    """The journal of one of the ``groups`` of a run; the first, where none is named. Raises `NothingRecorded`."""
    if not groups:
        raise NothingRecorded(f"Nothing is recorded of run {run_key} of DAG {dag_id!r}: no region has begun.")
    if group_id is not None and group_id not in groups:
        raise NothingRecorded(f"Run {run_key} of DAG {dag_id!r} has no group {group_id!r}. It has {', '.join(groups)}.")
    return Journal(store, RunIdentity(dag_id, run_key, group_id or groups[0]), writer=uuid.uuid4().hex)


def view_of(dag_id: str, run_key: str, group_id: str | None) -> RunView:
    """One group of a run, read once. Raises as `journal_of`."""
    store = deployment_journal()
    return view_run(journal_of(store, dag_id, run_key, group_id, groups_of(store, dag_id, run_key)))


def version_of(journal: Journal, listed: Iterable[ObjectInfo], observation: Observation, *more: str | None) -> str:
    """Changes with whatever a page shows. ``listed``: all objects of the journal but heartbeats. Caches don't count."""
    digest = hashlib.sha256(repr(more).encode())
    for info in listed:
        if info.key != journal.layout.snapshot:
            digest.update(f"{info.key} {info.etag}\n".encode())
    for key, task in sorted(observation.tries.items()):
        digest.update(f"{key} {task.ti_id} {task.state}\n".encode())
    return digest.hexdigest()[:32]


def places_of(stores: Stores, view: RunView) -> ResultPlaces:
    """Where the API server looks for results of a run: where a plan of the run has them, and nowhere else."""
    base, identity = stores.results.base_uri, view.journal.identity
    return ResultPlaces.of(base, identity, Asker.API_SERVER, view.in_use.recorded, stores.may_open)


def evaluation_of(stores: Stores, view: RunView) -> Evaluation:
    """For one plan. What a Spark Connect server keeps is taken to be there: only tasks know how to ask it."""
    return what_if.evaluate_run(view, places_of(stores, view), stores.open_location, lambda manifest: None)


def not_asked(stores: Stores, view: RunView) -> list[str]:
    """The regions with a result at a location that this API server does not open, and takes to be as registered."""
    return what_if.not_asked(places_of(stores, view), view)
