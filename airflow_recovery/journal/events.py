"""JobEvents, as in FLIP-383: the whole history of a run, for people, metrics and checks. Recovery never reads them.

What recovery needs stands in the write-once records, so a torn, late or missing event never changes a plan. Whatever a
process writes there it records here as well, so that replaying the events (`airflow_recovery.journal.replay`) comes to
the same state. An event carries the time at which it occurred as the caller saw it (ISO 8601); nothing is ordered by
it. One may be recorded twice: what it is about, an attempt or a number, is its identity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_recovery.errors import RecordInvalid, StreamDamaged
from airflow_recovery.model.codec import Unlike, canonical_json, from_json, to_json
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.record_kinds import RECORD_KINDS, RecordKind, kind_of, kind_of_event


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Base of all events. ``optional``: a reader that does not know the type may skip it."""

    occurred_at: str
    optional: ClassVar[bool] = False

    @property
    def type(self) -> str:
        """The type's name in the stream."""
        return type(self).__name__

    @property
    def subject(self) -> Any:
        """What the event is about: the record that was written, or the event itself."""
        return self


@dataclass(frozen=True, kw_only=True)
class RecordWritten(JobEvent):
    """A record is in the journal. Its type in the stream is that of its kind (`airflow_recovery.model.record_kinds`):

    ``AttemptClaimed``, ``ExecutionVertexFinished`` and ``ExecutionVertexFailed``, ``ExecutionVertexReset``,
    ``ResultLost``, ``PartitionsReleased``, ``SinkCommitted``, ``CommitterTurnTaken``, ``CommitterConfirmedDead``,
    ``HoldChanged``, ``ResultWithdrawn``, ``ResultPublished``, ``RunClosed``. The outputs of a finish are FLIP-383's
    shuffle snapshot. A finish is also told by a try that keeps the attempt, since the process that finished it may have
    died with its last events. ``number``: of a tombstone.
    """

    record: Any
    number: int | None = None

    @property
    def type(self) -> str:
        """The event type that the record's kind names; for an outcome, by how it ended."""
        return kind_of(type(self.record)).event_type(self.record)

    @property
    def subject(self) -> Any:
        """The record that was written."""
        return self.record


# What was written into the journal.


@dataclass(frozen=True, kw_only=True)
class JobPlanned(JobEvent):
    """One version of the job's code begins to run: the plan is in the journal under its hash."""

    job: str
    plan_hash: str


@dataclass(frozen=True, kw_only=True)
class SplitsCommitted(JobEvent):
    """Batch ``number`` of an attempt: ``splits`` of its splits are done. ``lost``: given up, within the loss budget."""

    region: str
    attempt: int
    number: int
    splits: int
    lost: bool
    optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class WriteInDoubt(JobEvent):
    """Whether the object at ``key`` was written is unknown: the store gave no answer for too long."""

    free_text: ClassVar[frozenset[str]] = frozenset({"why"})

    key: str
    why: str


# What is known of the stream itself.


@dataclass(frozen=True, kw_only=True)
class EventsDropped(JobEvent):
    """Here ``count`` events of this writer are missing."""

    free_text: ClassVar[frozenset[str]] = frozenset({"why"})

    count: int
    why: str


@dataclass(frozen=True, kw_only=True)
class StreamEnded(JobEvent):
    """The writer closed its stream. A stream without this event is still written, or its process was killed."""


# What is in no record.


@dataclass(frozen=True, kw_only=True)
class JobVertexInitialized(JobEvent):
    """The subtasks of a parallel region are known: ``keys`` by map index.

    ``appeared`` and ``vanished`` are what differs from those that the run had recorded before.
    """

    region: str
    parallelism: int
    keys: tuple[str, ...]
    appeared: tuple[str, ...]
    vanished: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RegionKept(JobEvent):
    """A region need not run: its attempt is valid, and its files are there where somebody wants them."""

    free_text: ClassVar[frozenset[str]] = frozenset({"why"})

    region: str
    attempt: int
    why: str
    files_checked: int
    seconds_saved: float | None


@dataclass(frozen=True, kw_only=True)
class ConsumerKept(JobEvent):
    """``producer`` was made again, and ``region``, which had read its attempt ``read``, keeps its result.

    ``by``: ``verify`` (digests are equal) or ``assume`` (the user's word); ``detail`` speaks against that word.
    """

    free_text: ClassVar[frozenset[str]] = frozenset({"detail"})

    region: str
    producer: str
    read: int
    now: int
    by: str
    detail: str
    optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class FailoverPlanned(JobEvent):
    """A region can't read its inputs; ``plan`` is the failover as planned: (region, why it must run)."""

    free_text: ClassVar[frozenset[str]] = frozenset({"plan"})

    region: str
    lost: tuple[InputRef, ...]
    plan: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class RegionSkipped(JobEvent):
    """A region was skipped by Airflow or by an input that was."""

    free_text: ClassVar[frozenset[str]] = frozenset({"why"})

    region: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Degraded(JobEvent):
    """Something works less well than configured: what, and what follows from it (promise 6)."""

    free_text: ClassVar[frozenset[str]] = frozenset({"what", "consequence"})

    what: str
    consequence: str
    optional: ClassVar[bool] = True


_CLASSES: dict[str, type[JobEvent]] = {
    event.__name__: event
    for event in (
        JobPlanned,
        SplitsCommitted,
        WriteInDoubt,
        EventsDropped,
        StreamEnded,
        JobVertexInitialized,
        RegionKept,
        ConsumerKept,
        FailoverPlanned,
        RegionSkipped,
        Degraded,
    )
}
EVENT_TYPES = frozenset({*_CLASSES, *(name for kind in RECORD_KINDS.values() for name in kind.events)})
"""Every type's name that this version knows in a stream."""


def event_to_json(event: JobEvent) -> dict[str, Any]:
    """Plain JSON values: the type's name, whether it is optional, and the fields; `event_from_json` is the inverse."""
    if not isinstance(event, RecordWritten):
        return {"type": event.type, "optional": event.optional, **to_json(event)}
    kind = kind_of(type(event.record))
    number = {} if event.number is None else {"number": event.number}
    head = {"type": event.type, "optional": kind.is_event_optional, "occurred_at": event.occurred_at}
    return {**head, **number, kind.key_in_event: to_json(event.record)}


def event_text(event: JobEvent) -> str:
    """Canonical JSON. Raises `ValueError` for NaN and infinities, `TypeError` for what JSON does not know."""
    return canonical_json(event_to_json(event))


def event_from_json(value: Any, *, where: str) -> JobEvent | None:
    """The event that ``value`` stands for; `None` for an unknown type that is marked optional.

    ``where`` names the record in messages. Raises `RecordInvalid` for an unknown type that is not optional, and
    `StreamDamaged` for fields that do not fit. A field that a newer version added to a known type is ignored.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise StreamDamaged(
            f"{where}: expected an event with a type, found {type(value).__name__}.",
            code="event-without-type",
            where=where,
        )
    own, kind = _CLASSES.get(value["type"]), kind_of_event(value["type"])
    if own is None and kind is None:
        if value.get("optional") is True:
            return None
        raise RecordInvalid(
            f"{where}: unknown event type {value['type']!r}, written by a newer version. Upgrade "
            "airflow-recovery here.",
            code="event-unknown",
            found=value["type"],
        )
    try:
        return _record_written(kind, value) if kind is not None else from_json(own or JobEvent, value)
    except Unlike as error:
        raise StreamDamaged(
            f"{where}: a {value['type']} event with invalid fields: {error}.", code="event-invalid", where=where
        ) from error


def _record_written(kind: RecordKind, value: dict[str, Any]) -> RecordWritten:
    head = from_json(_Head, value)
    record = from_json(kind.record, value.get(kind.key_in_event))
    return RecordWritten(occurred_at=head.occurred_at, record=record, number=head.number)


@dataclass(frozen=True)
class _Head:
    """The fields that an event of a record has beside the record."""

    occurred_at: str
    number: int | None = None
