"""Limit how many requests work at the same time, in total, for each user and for each DAG."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from fastapi import HTTPException

MOST_WAITING = 64
MOST_WAITING_OF_A_USER = 8


@dataclass(frozen=True)
class Who:
    """The user and the DAG that a place is counted for."""

    user: str
    dag_id: str


class NoPlace(HTTPException):
    """Answer HTTP 503: no place became free in time."""

    def __init__(self, detail: str, wait_s: float) -> None:
        super().__init__(503, detail, headers={"Retry-After": str(max(1, math.ceil(wait_s)))})


@dataclass
class _Turn:
    who: Who
    has_place: anyio.Event = field(default_factory=anyio.Event)


class Places:
    """``room`` places. A user may hold ``by_user`` of them, and a DAG ``by_dag``. For one event loop.

    A request that waits holds no thread. A free place goes to the first request in the queue that may have it. A
    request is refused after ``wait_s``, or at once if the queue is full.
    """

    def __init__(self, room: int, *, by_user: int, by_dag: int, wait_s: float) -> None:
        self.room = room
        self.by_user = by_user
        self.by_dag = by_dag
        self.wait_s = wait_s
        self._taken: list[Who] = []
        self._waiting: deque[_Turn] = deque()

    @property
    def taken(self) -> int:
        """Return the number of places that are taken."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        """Return the number of requests in the queue."""
        return len(self._waiting)

    @asynccontextmanager
    async def take(self, who: Who) -> AsyncIterator[None]:
        """Hold a place for the time of the context. Raises `NoPlace`."""
        await self._enter(who)
        try:
            yield
        finally:
            self._leave(who)

    async def _enter(self, who: Who) -> None:
        if self._may_have_one(who):
            self._taken.append(who)
            return
        of_user = sum(turn.who.user == who.user for turn in self._waiting)
        if len(self._waiting) >= MOST_WAITING or of_user >= MOST_WAITING_OF_A_USER:
            raise self._refusal()
        turn = _Turn(who)
        self._waiting.append(turn)
        try:
            with anyio.fail_after(self.wait_s):
                await turn.has_place.wait()
        except BaseException as error:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:
                self._leave(who)
            if isinstance(error, TimeoutError):
                raise self._refusal() from None
            raise

    def _leave(self, who: Who) -> None:
        self._taken.remove(who)
        for turn in list(self._waiting):
            if self._may_have_one(turn.who):
                self._waiting.remove(turn)
                self._taken.append(turn.who)
                turn.has_place.set()

    def _may_have_one(self, who: Who) -> bool:
        return (
            len(self._taken) < self.room
            and sum(each.user == who.user for each in self._taken) < self.by_user
            and sum(each.dag_id == who.dag_id for each in self._taken) < self.by_dag
        )

    def _refusal(self) -> NoPlace:
        return NoPlace(
            f"Recovery's pages are busy. This process answers at most {self.room} requests at the same time, "
            f"{self.by_user} for each user and {self.by_dag} for each DAG. Try again in a moment.",
            self.wait_s,
        )
