"""The receiving end of one execution attempt: what it was given, each number once (FLINK-21996).

numbers that come twice      acknowledged again, applied once: the first acknowledgement was lost
numbers that overtake        applied as they come; a hole below END keeps the attempt from finishing
another attempt's numbers    nothing: a gateway never outlives its attempt, and never speaks for its successor
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_recovery.source.split_log import End, Message


@dataclass(frozen=True)
class Apply:
    """Read these: they were not there before."""

    splits: tuple[str, ...]


@dataclass(frozen=True)
class Ack:
    """Number ``seq`` has arrived."""

    subtask: int
    attempt: int
    seq: int


Reaction: TypeAlias = Apply | Ack


class SubtaskGateway:
    """Of attempt ``attempt`` of ``subtask``."""

    def __init__(self, subtask: int, attempt: int) -> None:
        self.subtask = subtask
        self.attempt = attempt
        self._applied: set[int] = set()
        self._end: int | None = None
        self._is_over = False

    def on(self, message: Message) -> list[Reaction]:
        """What a message means: nothing, an acknowledgement, or something to read and an acknowledgement."""
        if not self._is_for_me(message):
            return []
        ack = Ack(self.subtask, self.attempt, message.seq)
        if message.seq in self._applied:
            return [ack]
        self._applied.add(message.seq)
        if isinstance(message, End):
            self._end = message.seq
            return [ack]
        return [Apply(message.splits), ack]

    def missing(self) -> tuple[int, ...] | None:
        """The numbers below END that have not arrived; `None` before END itself has."""
        if self._end is None:
            return None
        return tuple(seq for seq in range(self._end) if seq not in self._applied)

    @property
    def may_finish(self) -> bool:
        """Has everything that it was given arrived?"""
        return not self._is_over and self.missing() == ()

    def close(self) -> None:
        """The attempt is over: from now on, nothing."""
        self._is_over = True

    def _is_for_me(self, message: Message) -> bool:
        return not self._is_over and (message.subtask, message.attempt) == (self.subtask, self.attempt)
