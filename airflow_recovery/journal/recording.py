"""Every write-once object that a process writes is an event of its stream as well, by construction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from airflow_recovery.journal.events import (
    AttemptClaimed,
    CommitterConfirmedDead,
    CommitterTurnTaken,
    ExecutionVertexFailed,
    ExecutionVertexFinished,
    ExecutionVertexReset,
    HoldChanged,
    JobEvent,
    JobPlanned,
    PartitionsReleased,
    ResultLost,
    ResultPublished,
    RunClosed,
    SinkCommitted,
    SplitsCommitted,
    WriteInDoubt,
)
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    Committed,
    CommitterDead,
    CommitterTurn,
    Hold,
    Lost,
    Outcome,
    Part,
    PlanRecord,
    Publish,
    Record,
    Released,
    Reset,
)


class JournalListener(Protocol):
    """Is told what a `Journal` has written. Never waits and never raises."""

    def wrote(self, record: Record, number: int = 0) -> None:
        """``record`` is in the journal. ``number`` is that of a tombstone."""
        ...

    def in_doubt(self, key: str, why: str) -> None:
        """Whether the object at ``key`` was written is unknown."""
        ...


class NoListener:
    """Nobody is told."""

    def wrote(self, record: Record, number: int = 0) -> None:
        """Forget it."""

    def in_doubt(self, key: str, why: str) -> None:
        """Forget it."""


class Recorder:
    """Records what is written with ``record`` (`EventSink.record`), at the time that ``now`` gives."""

    def __init__(self, record: Callable[[JobEvent], None], now: Callable[[], str]) -> None:
        self._record = record
        self._now = now

    def wrote(self, record: Record, number: int = 0) -> None:
        """The event that says the same as ``record``."""
        self._record(_event_of(record, self._now(), number))

    def in_doubt(self, key: str, why: str) -> None:
        """The history can't say whether this was written."""
        self._record(WriteInDoubt(occurred_at=self._now(), key=key, why=why))


def _event_of(record: Record, at: str, number: int) -> JobEvent:  # noqa: C901 - a branch a kind of record
    if isinstance(record, PlanRecord):
        return JobPlanned(occurred_at=at, job=record.job, plan_hash=plan_hash(record))
    if isinstance(record, Claim):
        return AttemptClaimed(occurred_at=at, claim=record)
    if isinstance(record, Part):
        return SplitsCommitted(
            occurred_at=at,
            region=record.region,
            attempt=record.attempt,
            number=record.number,
            splits=len(record.splits),
            lost=record.lost is not None,
        )
    if isinstance(record, Outcome):
        if record.state is AttemptState.FINISHED:
            return ExecutionVertexFinished(occurred_at=at, outcome=record)
        return ExecutionVertexFailed(occurred_at=at, outcome=record)
    if isinstance(record, Reset):
        return ExecutionVertexReset(occurred_at=at, reset=record)
    if isinstance(record, Lost):
        return ResultLost(occurred_at=at, lost=record)
    if isinstance(record, Released):
        return PartitionsReleased(occurred_at=at, released=record)
    if isinstance(record, Publish):
        return ResultPublished(occurred_at=at, publish=record)
    if isinstance(record, Committed):
        return SinkCommitted(occurred_at=at, committed=record)
    if isinstance(record, CommitterTurn):
        return CommitterTurnTaken(occurred_at=at, turn=record)
    if isinstance(record, CommitterDead):
        return CommitterConfirmedDead(occurred_at=at, dead=record)
    if isinstance(record, Hold):
        return HoldChanged(occurred_at=at, hold=record)
    assert isinstance(record, Closed)
    return RunClosed(occurred_at=at, number=number, closed=record)
