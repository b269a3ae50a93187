"""Write-once objects and the slots of logs, over a network that may lose the answer.

`airflow_recovery.store.log.fill` is the rule for a write; `Slots` makes its requests, pauses where no definite answer
came, and gives up after a deadline. The kinds of slots differ in how an empty one is asked for:

    Slots         the store confirms that nothing is there
    ListedSlots   one listing, then all new slots at once: for a process that seldom looks
    PeekedSlots   one unconfirmed request a slot, and many ahead where it is far behind: for one that looks all the time
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from airflow_recovery.errors import (
    ObjectExists,
    ObjectMissing,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
    WriteLost,
)
from airflow_recovery.store.log import Answer, PutAnswer, PutSlot, ReadSlot, Request, Steps, fill
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, get_many

STREAK = 8
"""After so many filled slots in a row a reader counts as far behind: it reads as many ahead at a time."""
AHEAD = 32
"""The most slots that are read ahead at a time."""

R = TypeVar("R")
_NUMBER = re.compile("[0-9]{8}")


@dataclass(frozen=True)
class Backoff:
    """Pauses between repeated requests: doubling from ``initial_s`` up to ``cap_s``, the upper half of each random.

    The fixed lower half bounds the number of requests; the random half keeps the workers of a storm apart.
    """

    initial_s: float = 0.2
    cap_s: float = 10.0

    def pause_s(self, failures: int, rng: random.Random) -> float:
        """The pause after that many failures in a row (1 or more)."""
        whole = min(self.cap_s, self.initial_s * 2.0 ** min(failures - 1, 60))
        return whole / 2 + rng.random() * whole / 2


DEFAULT_BACKOFF = Backoff()


class Slots:
    """The objects ``<prefix><number, 8 digits>`` as the slots of a log. For one thread at a time.

    A write without a definite answer (timed out, in conflict, failing inside, no room) is repeated as it is. When no
    pause fits into ``deadline_s`` any more, the last `StoreTimeout`, `StoreUnavailable` or `StoreFull` is raised, and
    the outcome is unknown. There is always at least one request. Every other error of the store passes through at once.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        *,
        deadline_s: float = 300.0,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.store = store
        self.prefix = prefix
        self._deadline_s = deadline_s
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self.written: ObjectInfo | None = None
        """The object that the last put has created, or found."""
        self._ahead: dict[int, bytes] = {}
        self._putting: PutSlot | None = None
        self._began_s = 0.0
        self._failures = 0

    def key(self, slot: int) -> str:
        """The key of the object that fills a slot: the prefix, then the number with 8 digits."""
        return f"{self.prefix}{slot:08d}"

    def read(self, slot: int) -> bytes | None:
        """What a slot holds, as a log asks for it; `None` where nobody has filled it. Raises the store's errors."""
        return self.get(slot)

    def get(self, slot: int) -> bytes | None:
        """What a slot holds; `None` where the store confirms that nobody has filled it."""
        try:
            return self.store.get(self.key(slot)).body
        except ObjectMissing:
            return None

    def peek(self, slot: int) -> bytes | None:
        """What a slot holds; `None` where the store says that it is empty, unconfirmed.

        For a process that looks again later, or writes into the slot: a wrong "empty" delays the one, and the other's
        write is refused. A listing that confirms each "empty" would cost ten times as much.
        """
        try:
            return getattr(self.store, "peek", self.store.get)(self.key(slot)).body
        except ObjectMissing:
            return None

    def numbers(self, after: int = -1) -> list[int]:
        """The numbers above ``after`` that are filled, ascending. One listing; other names are passed over."""
        listed = self.store.list(self.prefix, start_after=self.key(after) if after >= 0 else "")
        names = (info.key[len(self.prefix) :] for info in listed)
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def run(self, steps: Steps[R]) -> R:
        """Make all requests of ``steps``, and return what they return."""
        self._putting = None
        try:
            request = next(steps)
            while True:
                request = steps.send(self._answer(request))
        except StopIteration as end:
            value: R = end.value
            return value

    def put(self, slot: int, body: bytes) -> bytes | None:
        """Fill a slot with ``body``; returns as `fill` does: `None`, or what the slot holds already."""
        return self.run(fill(slot, body))

    def put_object(self, key: str, body: bytes) -> None:
        """Write an object beside the log, under a key that only this process writes. Repeated as a slot is."""
        self._begin()
        while True:
            try:
                self.store.put(key, body)
                return
            except (StoreTimeout, StoreUnavailable, StoreFull) as error:
                unanswered = error
            self._pause(unanswered, key)

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, ReadSlot):
            return self.read(request.slot)
        key = self.key(request.slot)
        try:
            if isinstance(request, PutSlot):
                if request != self._putting:
                    self._begin()
                    self._putting = request
                self.written = self.store.put_if_absent(key, request.body)
                return PutAnswer.CREATED
            held = self.store.get(key)
            self.written = held.info
            return held.body
        except ObjectExists:
            return PutAnswer.EXISTS
        except ObjectMissing:
            contradiction = "the conditional write says the object exists, reading says it does not."
            self._pause(StoreUnavailable(f"{self.store.base_uri}/{key}: {contradiction}"), key)
        except (StoreTimeout, StoreUnavailable, StoreFull) as error:
            self._pause(error, key)
        return PutAnswer.UNKNOWN if isinstance(request, PutSlot) else None

    def _begin(self) -> None:
        self._began_s, self._failures = self._clock(), 0

    def _pause(self, error: StoreError, key: str) -> None:
        self._failures += 1
        pause_s = self._backoff.pause_s(self._failures, self._rng)
        spent_s = self._clock() - self._began_s
        if spent_s + pause_s > self._deadline_s:
            raise type(error)(
                f"Gave up writing {self.store.base_uri}/{key} after {self._failures} requests in {spent_s:.1f} s; "
                f"whether it was written is unknown. The last answer: {error}",
                code=error.code,
                **error.fields,
            ) from error
        self._sleep(pause_s)


class ListedSlots(Slots):
    """Slots that are found by a listing, then read all at once: for a process that seldom looks."""

    _end: int | None = None

    def read(self, slot: int) -> bytes | None:
        """What a slot holds as of the newest listing. Once that has answered `None`, the next call lists again."""
        if slot == self._end:
            self._end = None
            return None
        if slot not in self._ahead:
            keys: list[str] = []
            for number in self.numbers(slot - 1):
                if number != slot + len(keys):
                    break  # a page that is older than the next one; what is missing is read the next time
                keys.append(self.key(number))
            objects = get_many(self.store, keys)
            self._ahead = {slot + at: objects[key].body for at, key in enumerate(keys)}
            self._end = slot + len(keys) if keys else None
        return self._ahead.pop(slot, None)


class PeekedSlots(Slots):
    """Slots that are asked for one by one, and never listed: for a process that looks all the time."""

    _streak = 0

    def read(self, slot: int) -> bytes | None:
        """What a slot holds. A process that is far behind reads many ahead: one by one would take minutes."""
        body = self._ahead.pop(slot, None)
        if body is None and self._streak >= STREAK:
            slots = range(slot, slot + min(self._streak, AHEAD))
            with ThreadPoolExecutor(AHEAD, thread_name_prefix="recovery-slots") as pool:
                bodies = dict(zip(slots, pool.map(self.peek, slots), strict=True))
            # Slots are filled in order: what is behind a hole was written since, and is read again.
            self._ahead = {number: ahead for number, ahead in bodies.items() if ahead is not None}
            if len(self._ahead) < len(slots):
                self._streak = -AHEAD
            body = self._ahead.pop(slot, None)
        elif body is None:
            body = self.peek(slot)
        self._streak = 0 if body is None else self._streak + 1
        return body


@dataclass(frozen=True)
class Written:
    """An object that holds our bytes. ``created``: by this call's own PUT; else an earlier request had written it."""

    info: ObjectInfo
    created: bool


def write_once(  # noqa: PLR0913 - a test's clock, pause and dice
    store: ObjectStore,
    key: str,
    body: bytes,
    *,
    is_mine: Callable[[bytes], bool],
    deadline_s: float = 300.0,
    backoff: Backoff = DEFAULT_BACKOFF,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    rng: random.Random | None = None,
) -> Written:
    """Create ``key`` with ``body``, or find out for certain that it is there. As a slot of a log is filled.

    ``is_mine`` says of the bytes of an object that was there before whether they are this writer's. Raises `WriteLost`
    where they are not ours, and as `Slots`.
    """
    slot = _OneObject(store, key, deadline_s=deadline_s, backoff=backoff, clock=clock, sleep=sleep, rng=rng)
    held = slot.put(0, body)
    if held is not None and not is_mine(held):
        raise WriteLost(
            f"{store.base_uri}/{key} was written by another process first. Nothing was overwritten; this process must "
            "stop and let the next try look again.",
            held,
            code="written-by-another",
        )
    assert slot.written is not None
    return Written(slot.written, created=held is None)


class _OneObject(Slots):
    """A log of one slot, whose object's key is the prefix itself."""

    def key(self, slot: int) -> str:
        return self.prefix
