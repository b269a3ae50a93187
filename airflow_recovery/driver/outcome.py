"""What surrounds an attempt's work in its driver: heartbeats meanwhile, and the outcome object that finishes it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.background import in_background
from airflow_recovery.driver.cleanup import delete_results, delete_scratch
from airflow_recovery.driver.exit_report import write_receipt
from airflow_recovery.driver.fencing import FenceWatch, is_fenced
from airflow_recovery.driver.heartbeat import Heartbeat
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import AttemptLost
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.records import ReadMetrics
from airflow_recovery.store.object_store import ObjectStore


def open_early(spec: RegionSpec) -> Callable[[], ObjectStore]:
    """The journal's store, made ready in a thread while Spark works: the SDK and its client cost about 0.15 s."""

    def open_it() -> ObjectStore:
        store = open_spec_store(spec.journal)
        prepare = getattr(store, "prepare", None)
        if prepare is not None:
            prepare()
        return store

    return in_background(open_it, "open journal")


@contextmanager
def heartbeat(
    spec: RegionSpec, store: Callable[[], ObjectStore], log: logging.Logger, *, stop: Callable[[], object]
) -> Iterator[Heartbeat]:
    """The heartbeats of ``spec``'s driver, which this process is. ``store`` is the journal's.

    Where the attempt is fenced meanwhile, ``stop`` is called to end its work, and what it wrote is deleted.
    """

    def ask() -> bool:
        return is_fenced(Journal(store(), spec.identity, writer=spec.trace.writer), spec.region, spec.attempt)

    key = JournalLayout(spec.identity).heartbeat(spec.region, spec.attempt)
    signs = Heartbeat(store, key, spec.tag, log=log, every_s=spec.heartbeat_s, watch=FenceWatch(ask, stop))
    try:
        with signs:
            yield signs
    except AttemptLost:
        if signs.is_fenced:
            delete_results(spec, log)
        raise


def finish_attempt(
    spec: RegionSpec,
    result: AttemptResult,
    log: logging.Logger,
    *,
    store: ObjectStore | None = None,
    mask: Mask = scrubbed,
) -> None:
    """Put the outcome of ``spec``'s attempt, then its receipt; then delete its scratch.

    ``store`` is the journal's, where it is open already. ``mask`` takes secrets out of its free text.

    Raises `AttemptLost` where the attempt was fenced meanwhile: what it wrote is then nobody's, and is deleted. Raises
    the store's errors where the outcome stays unknown. Returns only if the outcome object exists.
    """
    journal = Journal(store or open_spec_store(spec.journal), spec.identity, writer=spec.trace.writer, mask=mask)
    outcome = spec.trace.finished(
        datetime.now(timezone.utc).isoformat(),
        result.outputs,
        spark_seconds=result.spark_seconds,
        application_id=result.application_id,
        read=ReadMetrics.of(spec.inputs, spec.trace.externals if result.externals is None else result.externals),
        accumulators=result.accumulators,
        worker=socket.gethostname(),
        coordinators=result.coordinators,
        mode=result.mode,
        undeclared=result.undeclared,
    )
    try:
        info = journal.finish(outcome)
    except AttemptLost:
        delete_results(spec, log)
        raise
    log.info("Region %s attempt %d is finished: %s", spec.region, spec.attempt, info.key)
    try:
        write_receipt(spec, outcome)
    except OSError as error:
        log.warning("The receipt could not be written, the task will ask the journal: %s", error)
    delete_scratch(spec, log)
