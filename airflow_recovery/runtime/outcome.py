"""Ending an attempt: the one object that makes it finished."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from datetime import datetime, timezone

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.records import AttemptState, Outcome
from airflow_recovery.runtime.receipt import write_receipt
from airflow_recovery.runtime.region import RegionResult
from airflow_recovery.runtime.spec import RegionSpec
from airflow_recovery.runtime.stores import open_spec_store
from airflow_recovery.storage.object_store import ObjectStore
from airflow_recovery.storage.s3 import S3Store


def open_early(spec: RegionSpec) -> Future[ObjectStore]:
    """The journal's store, made ready in a thread while Spark works: the SDK and its client cost about 0.15 s."""
    opened: Future[ObjectStore] = Future()

    def open_it() -> None:
        try:
            store = open_spec_store(spec.journal)
            if isinstance(store, S3Store):
                store.prepare()
            opened.set_result(store)
        except BaseException as error:  # told where the store is needed
            opened.set_exception(error)

    threading.Thread(target=open_it, name="open journal", daemon=True).start()
    return opened


def finish_attempt(
    spec: RegionSpec, result: RegionResult, log: logging.Logger, *, store: ObjectStore | None = None
) -> None:
    """Put the outcome of ``spec``'s attempt, then its receipt. ``store`` is the journal's, where it is open already.

    Raises `AttemptLost` where the attempt was fenced meanwhile: what it wrote is then nobody's. Raises the store's
    errors where the outcome stays unknown. Returns only if the outcome object exists.
    """
    journal = Journal(store or open_spec_store(spec.journal), spec.identity, writer=spec.writer)
    outcome = Outcome(
        region=spec.region,
        attempt=spec.attempt,
        state=AttemptState.FINISHED,
        writer=spec.writer,
        ended_at=datetime.now(timezone.utc).isoformat(),
        fingerprint=spec.fingerprint,
        inputs=spec.pins,
        externals=spec.externals,
        outputs=result.outputs,
        spark_seconds=result.spark_seconds,
        application_id=result.application_id,
    )
    info = journal.finish(outcome)
    log.info("Region %s attempt %d is finished: %s", spec.region, spec.attempt, info.key)
    try:
        write_receipt(spec, outcome)
    except OSError as error:
        log.warning("The receipt could not be written, the task will ask the journal: %s", error)
