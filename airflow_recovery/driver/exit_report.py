"""The files that a driver leaves for the task that waits for it: a receipt of the finish, or its failure.

Neither decides anything: the attempt is finished exactly when its outcome object exists. The receipt saves a request
where driver and task share a disk; the failure says what the exit code can't. Both are written best effort.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_recovery.driver.failure import describe
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import AttemptLost, Failure, ObjectMissing, RegionFailed, StoreError
from airflow_recovery.journal.codec import decode_record, encode_record
from airflow_recovery.journal.masking import Mask, masked
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.codec import from_json, to_json
from airflow_recovery.model.location import key_below
from airflow_recovery.model.records import Outcome
from airflow_recovery.store.object_store import ObjectStore

FAILURE_OBJECT = "_failure.json"


def write_receipt(spec: RegionSpec, outcome: Outcome) -> None:
    """Write ``spec.receipt`` in one step: the outcome as it is in the journal, which must hold it already.

    Nothing is written where the receipt's folder is not on this machine. Raises `OSError`.
    """
    _write_beside(spec.receipt, encode_record(spec.identity, outcome).decode())


def read_receipt(spec: RegionSpec) -> Outcome | None:
    """The outcome that is in the journal, or `None` where there is no receipt of this very attempt here.

    Then only the journal knows. Raises `RecordInvalid` for a file that is no outcome of this run.
    """
    text = _read(spec.receipt)
    if text is None:
        return None
    outcome = decode_record(spec.identity, Outcome, text.encode(), where=str(spec.receipt))
    is_mine = (outcome.region, outcome.attempt, outcome.writer) == (spec.region, spec.attempt, spec.trace.writer)
    return outcome if is_mine else None


def write_failure(spec: RegionSpec, failure: Failure, mask: Mask = scrubbed) -> None:
    """Write ``<receipt>.failure`` and ``<location>/_failure.json``, masked.

    Raises `StoreError` where the store refuses.
    """
    _write_beside(_failure_path(spec), _failure_text(failure, mask))
    store = open_spec_store(spec.results)
    write_failure_at(store, key_below(store.base_uri, spec.location), failure, mask)


def write_failure_at(store: ObjectStore, prefix: str, failure: Failure, mask: Mask = scrubbed) -> None:
    """Write ``failure``, masked, for the attempt whose results are below ``prefix``. Raises the store's errors."""
    store.put(f"{prefix}/{FAILURE_OBJECT}", _failure_text(failure, mask).encode())


def read_failure(spec: RegionSpec) -> Failure | None:
    """The failure that this attempt's driver has reported; `None` where it reported none (killed, or never started).

    Raises `StoreError` where the store does not answer.
    """
    text = _read(_failure_path(spec))
    if text is not None:
        return _failure_of(text)
    store = open_spec_store(spec.results)
    return read_failure_at(store, key_below(store.base_uri, spec.location))


def read_failure_at(store: ObjectStore, prefix: str) -> Failure | None:
    """As `read_failure`, of the attempt whose results are below ``prefix`` in ``store``."""
    try:
        return _failure_of(store.get(f"{prefix}/{FAILURE_OBJECT}").body)
    except ObjectMissing:
        return None


def _failure_of(text: str | bytes) -> Failure | None:
    """Read a report. Return `None` for another text: all who may write results can put one there."""
    try:
        return from_json(Failure, json.loads(text))
    except (ValueError, RecursionError):
        return None


def forget_failure(spec: RegionSpec, log: logging.Logger) -> None:
    """Delete what `write_failure` has written: it is in the journal now, or not true any more. Best effort."""
    try:
        path = _failure_path(spec)
        if path is not None:
            Path(path).unlink(missing_ok=True)
        store = open_spec_store(spec.results)
        forget_failure_at(store, key_below(store.base_uri, spec.location))
    except (OSError, StoreError) as error:
        log.warning("What the driver said of its failure is left at %s: %s", spec.location, error)


def forget_failure_at(store: ObjectStore, prefix: str) -> None:
    """As `forget_failure`, of the attempt whose results are below ``prefix``. Raises the store's errors."""
    store.delete([f"{prefix}/{FAILURE_OBJECT}"])


@contextmanager
def reporting_failure(
    spec: RegionSpec, progress: Progress, log: logging.Logger, mask: Mask = scrubbed
) -> Iterator[None]:
    """Leave the failure of what runs inside, whatever it is and without its secrets, and raise it again.

    A fenced attempt is no failure of its code: `AttemptLost` passes through unreported.
    """
    try:
        yield
    except AttemptLost:
        raise
    except BaseException as error:
        try:
            known = error.cause if isinstance(error, RegionFailed) else None
            write_failure(spec, known or describe(error, vertex=progress.vertex), mask)
        except Exception as second:  # the client of its store may be what is missing here
            log.warning("The failure could not be reported to %s: %s", spec.location, second)
        raise


def report_failure(spec: RegionSpec, failure: Failure, log: logging.Logger) -> None:
    """Report ``failure`` before this process kills itself for it, since it can't do so afterwards. Best effort."""
    try:
        write_failure(spec, failure)
    except (OSError, StoreError) as error:
        log.warning("The failure could not be reported to %s: %s", spec.location, error)


def _failure_text(failure: Failure, mask: Mask) -> str:
    return json.dumps(to_json(masked(failure, mask)))


def _failure_path(spec: RegionSpec) -> str | None:
    return None if spec.receipt is None else spec.receipt + ".failure"


def _write_beside(path: str | None, text: str) -> None:
    if path is None or not Path(path).parent.is_dir():
        return
    unfinished = Path(f"{path}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _read(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
