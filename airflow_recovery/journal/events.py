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
from airflow_recovery.journal.codec import canonical_json
from airflow_recovery.model.codec import Unlike, from_json, to_json
from airflow_recovery.model.records import (
    Claim,
    Closed,
    Committed,
    CommitterDead,
    CommitterTurn,
    Hold,
    InputRef,
    Lost,
    Outcome,
    Publish,
    Released,
    Reset,
)


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Base of all events. ``optional``: a reader that does not know the type may skip it."""

    occurred_at: str
    optional: ClassVar[bool] = False


# What was written into the journal.


@dataclass(frozen=True, kw_only=True)
class JobPlanned(JobEvent):
    """One version of the job's code begins to run: the plan is in the journal under its hash."""

    job: str
    plan_hash: str


@dataclass(frozen=True, kw_only=True)
class AttemptClaimed(JobEvent):
    """An attempt of a region begins; Spark is about to start."""

    claim: Claim


@dataclass(frozen=True, kw_only=True)
class SplitsCommitted(JobEvent):
    """Part ``number`` of an attempt: ``splits`` of its splits are done. ``lost``: given up, within the loss budget."""

    region: str
    attempt: int
    number: int
    splits: int
    lost: bool
    optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ExecutionVertexFinished(JobEvent):
    """An attempt finished (FLIP-383): its writer and worker, what it read, and its accumulators.

    Its outputs are the shuffle snapshot, an incremental one: partitions with files, sizes and rows. Also recorded by a
    try that keeps the attempt, since the process that finished it may have died with its last events.
    """

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class ExecutionVertexFailed(JobEvent):
    """An attempt was ended without a result. The outcome's cause says whether by its own failure."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class ExecutionVertexReset(JobEvent):
    """Attempts up to and including that of the reset do not count any more."""

    reset: Reset


@dataclass(frozen=True, kw_only=True)
class ResultLost(JobEvent):
    """A consumer reports that the result of an attempt is gone."""

    lost: Lost


@dataclass(frozen=True, kw_only=True)
class PartitionsReleased(JobEvent):
    """The data of an attempt may not be used any more."""

    released: Released


@dataclass(frozen=True, kw_only=True)
class SinkCommitted(JobEvent):
    """A sink has taken over what an attempt had prepared, or never will."""

    committed: Committed


@dataclass(frozen=True, kw_only=True)
class CommitterTurnTaken(JobEvent):
    """One process alone may commit to a sink that can only be probed."""

    turn: CommitterTurn


@dataclass(frozen=True, kw_only=True)
class CommitterConfirmedDead(JobEvent):
    """A process that might have committed is confirmed to be dead."""

    dead: CommitterDead


@dataclass(frozen=True, kw_only=True)
class HoldChanged(JobEvent):
    """A person has pinned the data of an attempt, or let them go again. Older readers know no holds."""

    hold: Hold
    optional: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class ResultPublished(JobEvent):
    """A coherent cut is what readers outside the run follow now."""

    publish: Publish


@dataclass(frozen=True, kw_only=True)
class RunClosed(JobEvent):
    """The run is being purged, for the ``number``-th time."""

    number: int
    closed: Closed


@dataclass(frozen=True, kw_only=True)
class WriteInDoubt(JobEvent):
    """Whether the object at ``key`` was written is unknown: the store gave no answer for too long."""

    key: str
    why: str


# What is known of the stream itself.


@dataclass(frozen=True, kw_only=True)
class EventsDropped(JobEvent):
    """Here ``count`` events of this writer are missing."""

    count: int
    why: str


@dataclass(frozen=True, kw_only=True)
class StreamEnded(JobEvent):
    """The writer has said everything. A stream without this event is still written, or its process was killed."""


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

    region: str
    lost: tuple[InputRef, ...]
    plan: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class RegionSkipped(JobEvent):
    """A region was skipped by Airflow or by an input that was."""

    region: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Degraded(JobEvent):
    """Something works less well than configured: what, and what follows from it (promise 6)."""

    what: str
    consequence: str
    optional: ClassVar[bool] = True


EVENTS: dict[str, type[JobEvent]] = {
    each.__name__: each
    for each in (
        JobPlanned,
        AttemptClaimed,
        SplitsCommitted,
        ExecutionVertexFinished,
        ExecutionVertexFailed,
        ExecutionVertexReset,
        ResultLost,
        PartitionsReleased,
        SinkCommitted,
        CommitterTurnTaken,
        CommitterConfirmedDead,
        HoldChanged,
        ResultPublished,
        RunClosed,
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


def event_to_json(event: JobEvent) -> dict[str, Any]:
    """Plain JSON values: the type's name, whether it is optional, and the fields; `event_from_json` is the inverse."""
    return {"type": type(event).__name__, "optional": event.optional, **to_json(event)}


def event_text(event: JobEvent) -> str:
    """Canonical JSON. Raises `ValueError` for NaN and infinities, `TypeError` for what JSON does not know."""
    return canonical_json(event_to_json(event))


def event_from_json(value: Any, *, where: str) -> JobEvent | None:
    """The event that ``value`` stands for; `None` for an unknown type that is marked optional.

    ``where`` names the record in messages. Raises `RecordInvalid` for an unknown type that is not optional, and
    `StreamDamaged` for fields that do not fit. A field that a newer version added to a known type is ignored.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise StreamDamaged(f"{where}: expected an event with a type, found {type(value).__name__}.")
    kind = EVENTS.get(value["type"])
    if kind is None:
        if value.get("optional") is True:
            return None
        raise RecordInvalid(
            f"{where}: unknown event type {value['type']!r}, written by a newer version. Upgrade airflow-recovery here."
        )
    try:
        return from_json(kind, value)
    except Unlike as error:
        raise StreamDamaged(f"{where}: a {value['type']} event with invalid fields: {error}.") from error
