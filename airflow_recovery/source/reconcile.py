"""What counts after the process of a coordinator is gone: its newest snapshot against what the subtasks did (FLIP-383).

    | on restore               | finish in snapshot | newer finish             | unfinished                          |
    |--------------------------|--------------------|--------------------------|-------------------------------------|
    | stable keys              | kept               | kept: it names its splits| fenced, base adopted, rest returned |
    | snapshots, keys unstable | kept               | reset                    | fenced, nothing adopted             |
    | neither, some unfinished | all subtasks are reset, and whoever consumes what they made                         |
    | neither, all finished    | kept; the first that is reset later takes all others along                          |

Flink drops every finish behind the last snapshot. Here a finish names its splits, so where a split is known by its
content (files, key ranges, dates) the snapshot need not have seen it. With the log in the store
(`airflow_recovery.journal.split_log_store`) nothing of this is asked, since the book survives its process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_recovery.source.split_log import CoordinatorState, Discovered, Reset, Return, SplitBook


class Support(str, Enum):
    """What survives of a coordinator."""

    STABLE_KEYS = "stable keys"
    """A split enumerated again is known by its key. The built-in ones are; yours may say that it is."""
    BATCH_SNAPSHOT = "batch snapshots"
    """It has `SupportsBatchSnapshot`; what it enumerates after a snapshot may be cut otherwise the next time."""
    NONE = "nothing"


class Fate(str, Enum):
    """What becomes of a subtask."""

    KEEP = "keep"
    RESET = "reset"
    """Its finish does not count any more."""
    ADOPT = "fence, adopt what is committed"
    START_ANEW = "fence, adopt nothing"


@dataclass(frozen=True)
class SubtaskOutcome:
    """The newest attempt of a subtask, as the journal has it. ``finished``: the splits of its finish that counts."""

    subtask: int
    attempt: int
    finished: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Decision:
    """The fate of one subtask, and why."""

    subtask: int
    attempt: int
    fate: Fate
    why: str


@dataclass(frozen=True)
class Plan:
    """What to do, and the book to go on from. ``enumerator``: the state that one which opted in goes on from.

    ``is_drained``: it has told of all, so whoever finds nothing may end.
    """

    decisions: tuple[Decision, ...]
    book: SplitBook
    enumerator: Any = None
    is_drained: bool = False

    @property
    def resets_consumers(self) -> bool:
        """Have they read what does not count any more? To a fixed point, as after every reset."""
        return any(each.fate is Fate.RESET for each in self.decisions)

    def with_fate(self, *fates: Fate) -> dict[int, int]:
        """Subtask to attempt, of those that meet one of ``fates``."""
        return {each.subtask: each.attempt for each in self.decisions if each.fate in fates}

    def text(self) -> str:
        """One line a subtask, for the task log."""
        return "\n".join(f"subtask {each.subtask}: {each.fate.value}: {each.why}" for each in self.decisions)


def reconcile(
    snapshot: CoordinatorState | None,
    outcomes: Iterable[SubtaskOutcome],
    support: Support,
    listed: Discovered | None = None,
) -> Plan:
    """The plan by the table above. ``listed`` is today's listing, where the splits can be listed again at once.

    ``outcomes`` are those of the subtasks that have started. Raises `RecordInvalid` where two finishes that would be
    kept name one split.
    """
    found = sorted(outcomes, key=lambda each: each.subtask)
    if support is Support.NONE:
        snapshot = None
        decisions = _volatile(found)
    else:
        counted = dict(snapshot.counted) if snapshot is not None else {}
        decisions = tuple(_decide(each, counted, support) for each in found)
    book = SplitBook.from_json(snapshot.book) if snapshot is not None else SplitBook()
    if listed is not None:
        book.add(listed)
    for each, decision in zip(found, decisions, strict=True):
        _give_back(book, each, decision)
    for each, decision in zip(found, decisions, strict=True):
        if decision.fate is Fate.KEEP:
            book.adopt(each.subtask, each.finished or ())
    if snapshot is None:
        return Plan(decisions, book, is_drained=listed is not None)
    return Plan(decisions, book, snapshot.enumerator, snapshot.is_drained)


def reset_together(outcomes: Iterable[SubtaskOutcome], support: Support) -> dict[int, int]:
    """Who is reset as well, now that one subtask that had finished is: subtask to attempt. None, unless volatile.

    It is asked of the journal each time, so it holds after any loss.
    """
    return {each.subtask: each.attempt for each in outcomes} if support is Support.NONE else {}


def _decide(found: SubtaskOutcome, counted: Mapping[int, int], support: Support) -> Decision:
    subtask, attempt = found.subtask, found.attempt
    if found.finished is None:
        if support is Support.STABLE_KEYS:
            return Decision(subtask, attempt, Fate.ADOPT, "not finished; what it had not committed goes home")
        why = "not finished; a split may be cut otherwise when it is enumerated again"
        return Decision(subtask, attempt, Fate.START_ANEW, why)
    if counted.get(subtask) == attempt:
        return Decision(subtask, attempt, Fate.KEEP, "finished, and in the snapshot")
    if support is Support.STABLE_KEYS:
        return Decision(subtask, attempt, Fate.KEEP, "finished after the snapshot; its finish names its splits")
    return Decision(subtask, attempt, Fate.RESET, "finished after the snapshot, which does not know what it was given")


def _volatile(found: list[SubtaskOutcome]) -> tuple[Decision, ...]:
    unfinished = [each.subtask for each in found if each.finished is None]
    if not unfinished:
        why = "all subtasks have finished; the first that is reset later takes the others along"
        return tuple(Decision(each.subtask, each.attempt, Fate.KEEP, why) for each in found)
    why = f"what was given out is known to nobody any more, and subtask {unfinished[0]} has not finished"
    return tuple(
        Decision(each.subtask, each.attempt, Fate.START_ANEW if each.finished is None else Fate.RESET, why)
        for each in found
    )


def _give_back(book: SplitBook, found: SubtaskOutcome, decision: Decision) -> None:
    """What the snapshot's book says that a subtask has, and that does not count, or is not known to."""
    if decision.fate in (Fate.RESET, Fate.START_ANEW):
        book.add(Reset(found.subtask, found.attempt))
        return
    named = set(found.finished or ())
    rest = tuple(each for each in book.held_by(found.subtask) if each not in named)
    # The attempt itself is over only when it has been fenced.
    book.add(Return(found.subtask, found.attempt - 1, rest))
