"""Opens what one task needs of its run: the stores, the journal, the way into Airflow, the event stream."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.run import DeclaredOperators, Run
from airflow_recovery.errors import HistoryIncomplete
from airflow_recovery.hooks.clear_clients import open_clear_client
from airflow_recovery.hooks.masking import mask_secrets
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.sinks import open_committers
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.hooks.tables import tables_of
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.owner import own_prefix, own_results
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.stream import EventWriter, StreamClosed
from airflow_recovery.model.components import Component
from airflow_recovery.model.job_recovery import ON_FAILURE, DeclaredJobRecovery, JobRecovery, OnStoreFailure
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import PlanRecord, RunIdentity
from airflow_recovery.results.places import Asker, ResultPlaces
from airflow_recovery.results.prober import OnAltered, ResultProber
from airflow_recovery.store.probe import probe
from airflow_recovery.store.timed import TimedStore
from airflow_recovery.task.group_components import group_components
from airflow_recovery.task.metrics import MeteredEvents, RecoveryMetrics, metrics_of
from airflow_recovery.task.recovery_off import RunWithoutRecovery
from airflow_recovery.task.run_context import code_version, dag_run_facts, is_live_run, run_identity, task_identity
from airflow_recovery.task.written_places import written_places

if TYPE_CHECKING:
    from airflow_recovery.driver.region_spec import RunFacts
    from airflow_recovery.job import Job


@dataclass(frozen=True)
class OpenRun:
    """A run, and the stores that its runner needs besides the journal."""

    run: Run
    stores: Stores
    settings: RecoverySettings

    def prepare_journal(self) -> None:
        """Before the first plan of a run is written: can this store hold a journal, and are it and the results ours?"""
        probe(self.stores.journal)
        self.run.check_owner()
        own_results(self.stores.journal, self.stores.results, deadline_s=float(self.settings.request_timeout))


@dataclass(frozen=True)
class RunPlace:
    """Where one try of a task of a run finds the run's records and results.

    ``unrecorded``: where the job does not recover. Its journal records and finds nothing.
    """

    identity: RunIdentity
    stores: Stores
    settings: RecoverySettings
    options: JobRecovery
    unrecorded: RunWithoutRecovery | None = None
    code_version: str = ""
    """What counts besides the code itself (`airflow_recovery.task.run_context.code_version`)."""

    @classmethod
    def of(
        cls,
        context: Mapping[str, Any],
        group_id: str,
        job_recovery: DeclaredJobRecovery,
        *,
        dag: Any = None,
        job: Job | None = None,
    ) -> RunPlace:
        """Of the run of ``context``. ``job_recovery`` is what the job declares of FLIP-383's options.

        The buckets that ``dag`` and ``job`` name may be opened (`written_places`).
        """
        settings, written = RecoverySettings.load(), written_places(context, dag, job)
        options = job_recovery.over(settings.job_recovery).in_effect()
        if options.enabled:
            version = code_version(context, settings.code_version)
            stores = open_stores(settings, written=written)
            return cls(run_identity(context, group_id), stores, settings, options, code_version=version)
        unrecorded = RunWithoutRecovery(context, group_id, settings, written)
        return cls(unrecorded.identity, unrecorded.stores, settings, options, unrecorded)

    def of_group(self, dag: Any, group_id: str, facts: RunFacts) -> tuple[Component, ...]:
        """As `group_components`; none if the job does not recover."""
        return () if self.unrecorded is not None else group_components(dag, group_id, facts, self.stores)

    def journal(self) -> Journal:
        """A journal of this place, for reading: nothing is told of what it reads."""
        if self.unrecorded is not None:
            return self.unrecorded.journal()
        return Journal(self.stores.journal, self.identity, writer=uuid.uuid4().hex)


@contextmanager
def open_run(  # noqa: PLR0913 - what a task knows of its run
    context: Mapping[str, Any],
    place: RunPlace,
    plan: PlanRecord,
    task_keys: Mapping[str, str],
    log: logging.Logger,
    *,
    on_altered: Mapping[str, OnAltered] | None = None,
    publish_keys: tuple[str, ...] = (),
    fingerprints: Mapping[str, str] | None = None,
    fields: Mapping[str, Mapping[str, Any]] | None = None,
    components_of: Callable[[str], Sequence[Component]] = lambda region: (),
    ask_cached: Callable[[PartitionManifest], str | None] | None = None,
    declared: DeclaredOperators | None = None,
    xcoms_counted: Mapping[str, bool] | None = None,
) -> Iterator[OpenRun]:
    """The run of ``context`` for one try of one task; its event stream is flushed at the end.

    ``ask_cached`` is `ResultProber`'s, ``fields`` those of `dag_run_facts`, ``declared`` and ``xcoms_counted``
    those of `Run`.

    Raises `ConfigurationError` where ``[recovery] journal`` is not set, and at the end `HistoryIncomplete` where events
    could not be written and that shall fail the task.
    """
    settings, stores, identity, options = place.settings, place.stores, place.identity, place.options
    if place.unrecorded is not None:
        yield OpenRun(place.unrecorded.open(plan, task_keys, fingerprints or {}, log), stores, settings)
        return
    own = partial(own_prefix, stores.journal, settings.deployment or "", deadline_s=float(settings.request_timeout))
    if settings.deployment is not None:
        own()
    writer = uuid.uuid4().hex
    metrics = metrics_of(context)
    timed = TimedStore(stores.journal, metrics.request)
    stream = EventWriter(
        timed,
        identity,
        writer,
        buffer_bytes=options.buffer_bytes,
        flush_interval_s=options.flush_interval_s,
        mask=mask_secrets,
    )
    events = MeteredEvents(stream, metrics, writer)
    journal = Journal(
        timed,
        identity,
        writer=writer,
        deadline_s=float(settings.request_timeout),
        listener=Recorder(events.record, _now),
        mask=mask_secrets,
        writes_snapshot=True,
        snapshot_min_pause_s=options.snapshot_min_pause_s,
    )
    clear_client = open_clear_client(context, settings.api_conn_id)
    run = Run(
        plan=plan,
        journal=journal,
        task_instances=clear_client,
        available=ResultProber(
            stores.open_location,
            on_altered,
            ask_cached,
            places=ResultPlaces.of(stores.results.base_uri, identity, Asker.TASK, [plan]),
            ask_table=lambda manifest: tables_of(stores).why_lost(manifest),
        ),
        task_keys=task_keys,
        task=task_identity(context),
        now=_now,
        log=log,
        events=events,
        publish_keys=publish_keys,
        fingerprints=fingerprints or {},
        heartbeat_timeouts=HeartbeatTimeouts.of(options.previous_worker_timeout_s),
        is_live_run=partial(is_live_run, context),
        open_committer=open_committers(stores),
        results=stores.results,
        dag_tasks=frozenset(context["dag"].task_dict) if "dag" in context else (),
        waits_for_past=_waiting_for_past(context),
        has_dag=clear_client.has_dag,
        check_owner=own if settings.deployment is None else lambda: None,
        dag_run=dag_run_facts(context, fields),
        components_of=components_of,
        is_secret=lambda text: mask_secrets(text) != text,
        declared=declared,
        xcoms_counted=xcoms_counted or {},
    )
    try:
        yield OpenRun(run, stores, settings)
    except BaseException:
        _end(stream, metrics, log)
        raise
    closed = _end(stream, metrics, log)
    if closed.failed and options.on_store_failure is OnStoreFailure.FAIL:
        raise HistoryIncomplete(
            f"{closed.dropped} job events of this try could not be written ({closed.failed}), and "
            f"{ON_FAILURE} is 'fail'. What the task has made stands in the journal: the next try keeps it, and records "
            "it again. See that the journal's store is reachable and not full.",
            code="events-not-written",
        )


def _end(stream: EventWriter, metrics: RecoveryMetrics, log: logging.Logger) -> StreamClosed:
    closed = stream.close()
    if closed.failed:
        metrics.count("history.dropped", closed.dropped)
        log.warning(
            "The history of this run has a hole: %d job events of this try could not be written (%s). Recovery is not "
            "affected.",
            closed.dropped,
            closed.failed,
        )
    return closed


def _now() -> str:
    import pendulum

    return pendulum.now("UTC").isoformat()


def _waiting_for_past(context: Mapping[str, Any]) -> frozenset[str]:
    tasks = context["dag"].task_dict if "dag" in context else {}
    return frozenset(name for name, task in tasks.items() if getattr(task, "depends_on_past", False))
