"""Every write-once object that a process writes is an event of its stream as well, by construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_recovery.journal.events import JobEvent, JobPlanned, RecordWritten, SplitsCommitted, WriteInDoubt
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.records import CommittedBatch, FingerprintRecord, PlanRecord, Record


class JournalListener(Protocol):
    """What a `Journal` calls after each of its writes. Never waits and never raises."""

    def wrote(self, record: Record, number: int = 0) -> None:
        """``record`` is in the journal. ``number`` is that of a tombstone."""
        ...

    def in_doubt(self, key: str, why: str) -> None:
        """Whether the object at ``key`` was written is unknown."""
        ...


class NoListener:
    """The listener of a journal that nobody listens to, so that nobody tests for `None`."""

    def wrote(self, record: Record, number: int = 0) -> None:
        """Does nothing."""

    def in_doubt(self, key: str, why: str) -> None:
        """Does nothing."""


class Recorder:
    """Records what is written with ``record`` (`EventSink.record`), at the time that ``now`` gives."""

    def __init__(self, record: Callable[[JobEvent], None], now: Callable[[], str]) -> None:
        self._record = record
        self._now = now

    def wrote(self, record: Record, number: int = 0) -> None:
        """Record the event of ``record``. What an attempt is made of has none: its claim names it."""
        if isinstance(record, FingerprintRecord):
            return
        self._record(_event_of(record, self._now(), number))

    def in_doubt(self, key: str, why: str) -> None:
        """Record that nobody knows whether the object at ``key`` was written."""
        self._record(WriteInDoubt(occurred_at=self._now(), key=key, why=why))


def _event_of(record: Record, at: str, number: int) -> JobEvent:
    # Two kinds are told in fewer words: plans are large, and committed batches are many.
    if isinstance(record, PlanRecord):
        return JobPlanned(occurred_at=at, job=record.job, plan_hash=plan_hash(record))
    if isinstance(record, CommittedBatch):
        return SplitsCommitted(
            occurred_at=at,
            region=record.region,
            attempt=record.attempt,
            number=record.number,
            splits=len(record.splits),
            lost=record.lost is not None,
        )
    return RecordWritten(occurred_at=at, record=record, number=number or None)
