"""What is explored: how many splits and subtasks, what may change between attempts, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.split_matching import Vanished


class Change(str, Enum):
    """What a user, or the world outside, may change at any moment. Then all tasks are cleared, or one of them."""

    CODE = "other code, or that of before"
    FEWER = "fewer subtasks"
    MORE = "more subtasks"
    VANISH = "a split vanishes"
    APPEAR = "a split comes, or comes back"
    OVERWRITE = "a split has other content"
    RESTART = "a region is restarted by a person"
    CLEAR = "a task is cleared"


class Fault(str, Enum):
    """What may go wrong, at any moment."""

    KILL = "a process dies, before or after any of its writes"
    FREEZE = "a process is taken for dead, and goes on later: all of its writes come late"


EVERY_CHANGE = frozenset(Change)
EVERY_FAULT = frozenset(Fault)
CODES = ("X", "Y")


@dataclass(frozen=True)
class Case:
    """Up to ``changes`` changes and ``faults`` faults, of these kinds, of a source with so many subtasks and splits.

    ``is_dynamic``: the subtasks pull their splits; else each split has its home. ``fewest``: how many subtasks are left
    with `Change.FEWER`. ``is_fine``: a process lists the journal, and decides by it, in two steps.
    """

    splits: int
    changes: int
    faults: int
    of_changes: frozenset[Change] = EVERY_CHANGE
    of_faults: frozenset[Fault] = EVERY_FAULT
    is_dynamic: bool = True
    vanished: Vanished = Vanished.DROP
    subtasks: int = 2
    fewest: int = 1
    batch: int = 1
    """How many splits are read together, and committed as one batch."""
    is_fine: bool = False

    def text(self) -> str:
        """One line for people."""
        changes = _named(self.of_changes, EVERY_CHANGE)
        faults = _named(self.of_faults, EVERY_FAULT)
        kind = "dynamic" if self.is_dynamic else "static"
        return (
            f"{kind}, {self.vanished.value}: {self.splits} splits, {self.subtasks} subtasks, {self.changes} changes "
            f"({changes}), {self.faults} faults ({faults})"
        )


def _named(kinds: frozenset[Change] | frozenset[Fault], every: frozenset[Change] | frozenset[Fault]) -> str:
    return "any kind" if kinds == every else ", ".join(sorted(kind.name.lower() for kind in kinds))
