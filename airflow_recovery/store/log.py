"""A log of write-once objects: numbered slots that are filled in order. It says what to request, and requests nothing.

There is no coordinator that could die: a record is put only by a process that has folded all records before it, so two
writers can't both be right about the tail. The one that loses a slot folds the winner's record and decides again. That
orders all records without a lock, a clock, or an object that is overwritten.

Every step is a generator that yields requests. `Slots` (`airflow_recovery.store.write_once`) makes them of an object
store; a simulation can stop at each of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar


@dataclass(frozen=True)
class ReadSlot:
    """Read a slot that may be empty. The answer is its bytes, or `None` where nobody has filled it."""

    slot: int


@dataclass(frozen=True)
class PutSlot:
    """Put into a slot if it is empty. The answer is a `PutAnswer`."""

    slot: int
    body: bytes


@dataclass(frozen=True)
class ReadBack:
    """Read a slot that was said to be taken. The answer is its bytes, or `None` where they can't be had now."""

    slot: int


class PutAnswer(Enum):
    """What the writer knows of its conditional write."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"
    """No answer came: the write may have had its effect, or may still have it."""


Request = ReadSlot | PutSlot | ReadBack
Answer = bytes | PutAnswer | None
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
Steps = Generator[Request, Answer, R]


def fill(slot: int, body: bytes) -> Steps[bytes | None]:
    """The PUT rule (docs/protocol.md#put-rule): put ``body`` into an empty slot, and find out what the slot holds.

    `None`: this very call has created it. Else the bytes that the slot holds: ``body`` itself where an earlier request
    of this call has landed and its reply was lost.

    Where no answer came, the same put is repeated: reading "not there" proves nothing, since the request may still
    land. So an unknown outcome is taken neither for success nor for failure.
    """
    while True:
        answer = yield PutSlot(slot, body)
        if answer is PutAnswer.CREATED:
            return None
        if answer is PutAnswer.EXISTS:
            held = yield ReadBack(slot)
            if isinstance(held, bytes):
                return held


class WriteOnceLog(ABC, Generic[S]):
    """One process's view of a log: ``state`` is the fold over the first ``tail`` slots.

    A subclass says how a record becomes bytes, and how bytes change the state.
    """

    def __init__(self, state: S, tail: int = 0) -> None:
        self.state = state
        self.tail = tail
        self.lost_races = 0
        """How often another process was first."""

    @abstractmethod
    def encode(self, slot: int, record: Any) -> bytes:
        """The bytes of ``record`` in ``slot``. No other write may have the same: they name the writer."""

    @abstractmethod
    def fold(self, slot: int, body: bytes) -> None:
        """Change ``state`` by what ``slot`` holds. Raises where that is no record of this log."""

    def refresh(self, most: int | None = None) -> Steps[S]:
        """Fold what was written since, or ``most`` slots of it. Raises as `fold`."""
        end = None if most is None else self.tail + most
        while self.tail != end:
            body = yield ReadSlot(self.tail)
            if not isinstance(body, bytes):
                break
            self._take(body)
        return self.state

    def append(self, decide: Callable[[S], T | None]) -> Steps[T | None]:
        """Write what ``decide`` makes of the state, which is the one right before the record.

        ``decide`` is asked again after every lost race; what it raises is raised. `None`: there is nothing to write.
        """
        while True:
            yield from self.refresh()
            record = decide(self.state)
            if record is None:
                return None
            body = self.encode(self.tail, record)
            if (yield from self._put(self.tail, body)):
                self._take(body)
                return record
            self.lost_races += 1

    def _put(self, slot: int, body: bytes) -> Steps[bool]:
        """Whether the slot holds these very bytes, for certain."""
        held = yield from fill(slot, body)
        return held is None or held == body

    def _take(self, body: bytes) -> None:
        self.fold(self.tail, body)
        self.tail += 1
