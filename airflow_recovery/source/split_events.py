"""What a coordinator of splits is told, and what it asks for (`airflow_recovery.source.split_coordinator`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_recovery.source.split_log import CoordinatorState, Discovered, Message, Reset, Return

# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoMoreSplits:
    """The enumerator has told of all: whoever asks now and finds nothing, gets END."""


@dataclass(frozen=True)
class Ready:
    """An attempt runs, and can be sent to."""

    subtask: int
    attempt: int


@dataclass(frozen=True)
class Requested:
    """It wants more."""

    subtask: int
    attempt: int


@dataclass(frozen=True)
class Acked:
    """Number ``seq`` has arrived."""

    subtask: int
    attempt: int
    seq: int


@dataclass(frozen=True)
class SendFailed:
    """The call that sent number ``seq`` failed or timed out: whether it has arrived is unknown."""

    subtask: int
    attempt: int
    seq: int


@dataclass(frozen=True)
class RetryDue:
    """Now that failure is to be handled."""

    subtask: int
    attempt: int
    seq: int


@dataclass(frozen=True)
class PartCommitted:
    """A part with these splits is in the part log of that attempt."""

    subtask: int
    attempt: int
    splits: tuple[str, ...]


@dataclass(frozen=True)
class AttemptFailed:
    """It is gone, or taken to be."""

    subtask: int
    attempt: int


@dataclass(frozen=True)
class FenceAnswered:
    """The attempt is over for good. ``finished``: the splits of a finish that was there before the fence."""

    subtask: int
    attempt: int
    finished: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Claimed:
    """``attempt``, the successor, is claimed; ``base``: the splits in the parts that its claim adopts."""

    subtask: int
    attempt: int
    base: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Finished:
    """Its finish is in the store and names these splits. ``at_s``: when, on any clock that only goes forward."""

    subtask: int
    attempt: int
    splits: tuple[str, ...]
    at_s: float = 0.0


@dataclass(frozen=True)
class SubtaskReset:
    """A finish that counted does not any more."""

    subtask: int
    attempt: int


@dataclass(frozen=True)
class SnapshotWritten:
    """That snapshot is in the store."""

    number: int


@dataclass(frozen=True)
class SnapshotTimedOut:
    """It takes too long: give it up. The next finish asks for another."""

    number: int


Event: TypeAlias = (
    Discovered
    | NoMoreSplits
    | Ready
    | Requested
    | Acked
    | SendFailed
    | RetryDue
    | PartCommitted
    | AttemptFailed
    | FenceAnswered
    | Claimed
    | Finished
    | SubtaskReset
    | SnapshotWritten
    | SnapshotTimedOut
)


# --- actions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Send it to the attempt that it names, and say `Acked` or `SendFailed`."""

    message: Message


@dataclass(frozen=True)
class Fence:
    """End that attempt, and say `FenceAnswered`; after it somebody claims the next one (`Claimed`)."""

    subtask: int
    attempt: int


@dataclass(frozen=True)
class Snapshot:
    """Write this, and say `SnapshotWritten`, or `SnapshotTimedOut`."""

    number: int
    state: CoordinatorState


Action: TypeAlias = Send | Fence | Return | Reset | Snapshot
"""`Return` and `Reset` say what has happened to the book already: record it where a log is kept."""
