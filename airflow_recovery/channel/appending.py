"""How a record gets into the control log, without doing any I/O: a generator that asks for reads and writes.

`append` is the only way to change a channel: fold what is there, prepare the record against it, and try the next slot.
Whoever loses the slot folds the winner, and prepares again or is refused. That orders "pinned" and "dropped" without
compare-and-swap, a clock, or a listing. A shell answers each request, and a simulation can stop at each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from airflow_recovery.channel.codec import Entry, decode_entry, encode_entry
from airflow_recovery.channel.folding import apply
from airflow_recovery.channel.records import ChannelIdentity, ChannelRecord
from airflow_recovery.channel.state import ChannelState


@dataclass(frozen=True)
class ReadSlot:
    """Read a slot. The answer is its bytes, or `None` where nobody has filled it."""

    slot: int


@dataclass(frozen=True)
class PutSlot:
    """Put into a slot if it is empty. The answer is a `PutAnswer`."""

    slot: int
    body: bytes


class PutAnswer(Enum):
    """What became of a conditional write."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"
    """No answer came: it may have landed, and it may land later."""


Request = ReadSlot | PutSlot
Answer = bytes | PutAnswer | None
R = TypeVar("R")
T = TypeVar("T", bound=ChannelRecord)
Steps = Generator[Request, Answer, R]


class ChannelLog:
    """One process's view of a control log. ``writer`` must differ from that of every other process."""

    def __init__(self, identity: ChannelIdentity, writer: str) -> None:
        self.identity = identity
        self.writer = writer
        self.state = ChannelState()
        self.lost_races = 0
        """How often another process was first."""

    def refresh(self, most: int | None = None) -> Steps[ChannelState]:
        """Fold what was written since, or ``most`` slots of it. Raises `RecordInvalid` and `ChannelInconsistent`."""
        begun = self.state.slots
        while most is None or self.state.slots - begun < most:
            body = yield ReadSlot(self.state.slots)
            if body is None:
                break
            assert isinstance(body, bytes)
            self._fold(body)
        return self.state

    def append(self, prepare: Callable[[ChannelState], T | None]) -> Steps[T | None]:
        """Write what ``prepare`` makes of the state, which is the one right before the record.

        ``prepare`` is asked again after every lost race; what it raises is raised. `None`: there is nothing to write.
        """
        while True:
            yield from self.refresh()
            record = prepare(self.state)
            if record is None:
                return None
            slot = self.state.slots
            body = encode_entry(self.identity, slot, Entry(self.writer, record))
            if (yield from self._put(slot, body)):
                self._fold(body)
                return record
            self.lost_races += 1

    def _put(self, slot: int, body: bytes) -> Steps[bool]:
        """Whether the slot holds these very bytes, for certain.

        The same write is repeated until its answer is definite, since "not there" after a time-out proves nothing. Who
        is told that the slot is taken reads it: it may be an earlier try, whose reply was lost.
        """
        answer: Answer = PutAnswer.UNKNOWN
        while answer is PutAnswer.UNKNOWN:
            answer = yield PutSlot(slot, body)
        return answer is PutAnswer.CREATED or (yield ReadSlot(slot)) == body

    def _fold(self, body: bytes) -> None:
        slot = self.state.slots
        where = f"slot {slot} of channel {self.identity.edge!r}"
        apply(self.state, decode_entry(self.identity, slot, body, where=where).record)
