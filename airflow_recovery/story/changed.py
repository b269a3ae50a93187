"""What a change has done: the response classes of the commands and REST routes that pin, withdraw and release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.attempt.manual_release import ReleaseByHand
from airflow_recovery.model.records import Pin, Withdrawal
from airflow_recovery.results.release import Deleted


@dataclass(frozen=True)
class Pinned:
    """Who has pinned or unpinned an attempt. An attempt that was pinned before stays pinned by the first user."""

    region: str
    attempt: int
    turn: int
    pinned: bool
    who: str
    why: str

    @classmethod
    def of(cls, pin: Pin) -> Pinned:
        """Return what the record says."""
        return cls(pin.region, pin.attempt, pin.turn, pin.is_pinned, pin.who, pin.why)


@dataclass(frozen=True)
class WithdrawnAttempt:
    """One attempt as it is now. An attempt that was withdrawn before stays withdrawn by the first user."""

    region: str
    attempt: int
    turn: int
    withdrawn: bool
    who: str
    reason: str


@dataclass(frozen=True)
class Withdrawn:
    """The attempts that were withdrawn or given back."""

    attempts: list[WithdrawnAttempt]

    @classmethod
    def of(cls, turns: Iterable[Withdrawal]) -> Withdrawn:
        """Return what the records say."""
        return cls(
            [
                WithdrawnAttempt(turn.region, turn.attempt, turn.turn, turn.is_withdrawn, turn.who, turn.reason)
                for turn in turns
            ]
        )


@dataclass(frozen=True)
class ReleasedData:
    """The data that was deleted. ``pinned_by``: attempts that have begun to read it, so that ``gc`` deletes it later.

    ``kept_after_deletion``: why deleted objects stay readable in this store, or may; empty if they are gone.
    ``tags_left``: which tag of ours a table still has, and why; the next ``gc`` removes it.
    """

    region: str
    attempt: int
    files: int
    bytes: int
    pinned_by: str
    kept_after_deletion: str
    tags_left: str

    @classmethod
    def of(cls, release: ReleaseByHand, deleted: Deleted, kept_after_deletion: str) -> ReleasedData:
        """Return what a release has done."""
        name, number = release.region, release.attempt.number
        return cls(name, number, deleted.objects, deleted.size, deleted.readers, kept_after_deletion, deleted.tags_left)
