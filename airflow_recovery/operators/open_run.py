"""Opens what one task needs of its run: the stores, the journal, the way into Airflow, the event stream."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from airflow_recovery.execution.probing import OnAltered, ResultProber
from airflow_recovery.execution.run import Run
from airflow_recovery.hooks.doors import open_door
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.records import PlanRecord, RunIdentity
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.operators.run_context import task_identity
from airflow_recovery.storage.object_store import ObjectStore
from airflow_recovery.storage.probe import probe


@dataclass(frozen=True)
class OpenRun:
    """A run, and the stores that its runner needs besides the journal."""

    run: Run
    stores: Stores
    settings: RecoverySettings

    def prepare_journal(self) -> None:
        """Before the first plan of a run is written: can this store hold a journal at all?"""
        probe(self.stores.journal)


@contextmanager
def open_run(
    context: Mapping[str, Any],
    identity: RunIdentity,
    plan: PlanRecord,
    task_keys: Mapping[str, str],
    log: logging.Logger,
    *,
    on_altered: Mapping[str, OnAltered] | None = None,
    publish_keys: tuple[str, ...] = (),
    fingerprints: Mapping[str, str] | None = None,
    stores: Stores | None = None,
) -> Iterator[OpenRun]:
    """The run of ``context`` for one try of one task; its event stream is flushed at the end.

    Raises `ConfigurationError` where ``[recovery] journal`` is not set.
    """
    settings = RecoverySettings.load()
    stores = stores or open_stores(settings)
    writer = uuid.uuid4().hex
    events = EventWriter(stores.journal, JournalLayout(identity).streams, writer)
    run = Run(
        plan=plan,
        journal=Journal(stores.journal, identity, writer=writer, deadline_s=float(settings.request_timeout)),
        scheduler=open_door(context, settings.api_conn_id),
        available=ResultProber(_opener(stores), on_altered),
        task_keys=task_keys,
        task=task_identity(context),
        now=_now,
        log=log,
        events=events,
        publish_keys=publish_keys,
        fingerprints=fingerprints or {},
    )
    try:
        yield OpenRun(run, stores, settings)
    finally:
        closed = events.close()
        if closed.failed:
            log.warning(
                "The job events of this try are incomplete in the journal: %s. Recovery is not affected.", closed
            )


def _opener(stores: Stores) -> Callable[[str], ObjectStore]:
    def open_location(location: str) -> ObjectStore:
        base = stores.results.base_uri
        if location == base or location.startswith(f"{base}/"):
            return stores.results
        return stores.open_external(location)

    return open_location


def _now() -> str:
    import pendulum

    return pendulum.now("UTC").isoformat()
