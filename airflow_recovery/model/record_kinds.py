"""The kinds of records, one row each: what its object is called, who writes it, and which event it becomes.

All that differs from kind to kind is read from here: by the codec (`airflow_recovery.journal.codec`), the names of
objects (`airflow_recovery.journal.layout`), the fold of a listing (`airflow_recovery.journal.journal`), the event
stream (`airflow_recovery.journal.events`) and its replay (`airflow_recovery.journal.replay`). A new kind is its
class in `airflow_recovery.model.records`, its row here, and whoever acts on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Closed,
    Committed,
    CommittedBatch,
    CommitterDead,
    CommitterEpoch,
    Declared,
    FingerprintRecord,
    Kept,
    Lost,
    Outcome,
    Pin,
    PlanRecord,
    Publish,
    Released,
    Reset,
    SplitGeneration,
    Withdrawal,
)


@dataclass(frozen=True)
class RecordKind:
    """One kind of record.

    ``name`` is written into the record. A record about an attempt lies at ``t/<region>/<n>.<name>``, or at
    ``t/<region>/<n>.<name>-<number>``: ``number`` is the record's field with that number, counted from ``first``.
    """

    name: str
    record: type[Any]
    written_by: str
    """Which process or person writes it: for the reader of this table."""
    is_of_attempt: bool = True
    number: str | None = None
    first: int = 1
    mark: str | None = None
    """The field of `airflow_recovery.journal.run_state.Attempt` that the name of the object alone sets: to True, or to
    the highest number."""
    content: str | None = None
    """Its field that holds the record, once it was read."""
    events: tuple[str, ...] = ()
    """The types of its event in the stream. None: it has no event, or one that says less than the record."""
    event_key: str = ""
    """The key of the record in that event, where it is not the kind's name."""
    event_of: Callable[[Any], str] | None = None
    """Which of several types a record has."""
    is_event_optional: bool = False
    """A reader that does not know the event may skip it."""

    @property
    def key_in_event(self) -> str:
        """The key of the record in the JSON of its event."""
        return self.event_key or self.name

    def event_type(self, record: Any) -> str:
        """The type of the event of ``record``."""
        return self.events[0] if self.event_of is None else self.event_of(record)


def _ended(outcome: Outcome) -> str:
    return "ExecutionVertexFinished" if outcome.state is AttemptState.FINISHED else "ExecutionVertexFailed"


RECORD_KINDS: dict[str, RecordKind] = {
    kind.name: kind
    for kind in (
        RecordKind("plan", PlanRecord, "the first task that runs a version of the code", is_of_attempt=False),
        RecordKind(
            "claim",
            Claim,
            "a region's task, before it submits",
            mark="is_claimed",
            content="claim",
            events=("AttemptClaimed",),
        ),
        RecordKind("fingerprint", FingerprintRecord, "a region's task, before it claims", is_of_attempt=False),
        RecordKind("part", CommittedBatch, "the driver, while its region is made", number="number", first=0),
        RecordKind(
            "outcome",
            Outcome,
            "the driver that finishes, or whoever ends an attempt",
            mark="has_outcome",
            content="outcome",
            events=("ExecutionVertexFinished", "ExecutionVertexFailed"),
            event_of=_ended,
        ),
        RecordKind(
            "reset",
            Reset,
            "a person, a recompute, or a failover",
            mark="is_reset",
            content="reset",
            events=("ExecutionVertexReset",),
        ),
        RecordKind(
            "kept",
            Kept,
            "a region's task that keeps a finish which a later claim calls outdated",
            mark="is_kept",
            events=("FinishFoundValid",),
            is_event_optional=True,
        ),
        RecordKind(
            "declared",
            Declared,
            "a consumer's task that finds its producer declared otherwise, and the producer's own task in answer",
            number="turn",
            mark="declared_turn",
            events=("DeclarationCompared",),
            event_key="declaration",
            is_event_optional=True,
        ),
        RecordKind("lost", Lost, "a consumer's task", mark="is_lost", events=("ResultLost",)),
        RecordKind(
            "released",
            Released,
            "the release policy, a person, or the sweeper",
            mark="is_released",
            events=("PartitionsReleased",),
        ),
        RecordKind("assignment", SplitGeneration, "a source's task, when it lists its splits", is_of_attempt=False),
        RecordKind(
            "committed",
            Committed,
            "whoever commits a finish to its sink, or probes it",
            mark="is_committed",
            content="committed",
            events=("SinkCommitted",),
        ),
        RecordKind(
            "committer",
            CommitterEpoch,
            "the process that alone may commit from now on",
            number="epoch",
            mark="committer_epoch",
            events=("CommitterTurnTaken",),
            event_key="turn",
        ),
        RecordKind(
            "confirmed",
            CommitterDead,
            "a person who knows that a process is dead, or that process",
            number="epoch",
            mark="dead_epoch",
            events=("CommitterConfirmedDead",),
            event_key="dead",
        ),
        RecordKind(
            "hold",
            Pin,
            "a person who pins a result, or unpins it",
            number="turn",
            mark="pin_turn",
            events=("HoldChanged",),
            is_event_optional=True,
        ),
        RecordKind(
            "withdrawn",
            Withdrawal,
            "a person who takes a published result from readers outside the run, or gives it back",
            number="turn",
            mark="withdrawn_turn",
            events=("ResultWithdrawn",),
            event_key="withdrawal",
            is_event_optional=True,
        ),
        RecordKind("publish", Publish, "the publish task", is_of_attempt=False, events=("ResultPublished",)),
        RecordKind("closed", Closed, "the sweeper", is_of_attempt=False, events=("RunClosed",)),
    )
}


def kind_of(record: type[Any]) -> RecordKind:
    """The kind of the records of a class. Raises `LookupError` for a class that has none."""
    for kind in RECORD_KINDS.values():
        if kind.record is record:
            return kind
    raise LookupError(f"expected a class of {__name__}.RECORD_KINDS, found {record.__name__}: add a row for it")


def kind_of_event(event: str) -> RecordKind | None:
    """The kind whose records have events of that type; `None` where no kind has."""
    return next((kind for kind in RECORD_KINDS.values() if event in kind.events), None)
