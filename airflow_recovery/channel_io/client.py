"""One process's access to one channel: its log over a store, and its objects."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from airflow_recovery.channel.appending import Answer, ChannelLog, PutAnswer, PutSlot, Request, Steps
from airflow_recovery.channel.records import ChannelIdentity, ChannelRecord
from airflow_recovery.channel.state import ChannelState
from airflow_recovery.channel_io.folder import ChannelFolder
from airflow_recovery.channel_io.slots import peek_slot
from airflow_recovery.errors import ObjectExists, StoreError, StoreTimeout, StoreUnavailable
from airflow_recovery.storage.backoff import Backoff
from airflow_recovery.storage.object_store import ObjectStore

STREAK = 8
"""Slots that were found one after the other: who finds so many is far behind, and reads as many ahead."""
AHEAD = 32
"""At most."""

R = TypeVar("R")
T = TypeVar("T", bound=ChannelRecord)


class ChannelClient:
    """Not for several threads. ``writer`` must differ from that of every other process and client.

    Writes whose outcome is unknown are repeated for up to ``deadline_s``; then the store's last answer is raised, and
    whether the record is there is unknown: the next attempt will see. Every method raises the store's errors.
    """

    def __init__(
        self,
        store: ObjectStore,
        identity: ChannelIdentity,
        writer: str,
        *,
        deadline_s: float = 300.0,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.folder = ChannelFolder(identity)
        self.clock = clock
        self.sleep = sleep
        self._log = ChannelLog(identity, writer)
        self._deadline_s = deadline_s
        self._backoff = backoff or Backoff()
        self._rng = random.Random(writer)
        self._streak = 0
        self._ahead: dict[str, bytes] = {}

    @property
    def identity(self) -> ChannelIdentity:
        """Which channel it is."""
        return self._log.identity

    @property
    def state(self) -> ChannelState:
        """The fold as of the last request."""
        return self._log.state

    def refresh(self, most: int | None = None) -> ChannelState:
        """Fold what was written since; ``most`` slots of it, for who can't wait for a log of a year."""
        return self._run(self._log.refresh(most))

    def append(self, prepare: Callable[[ChannelState], T | None]) -> T | None:
        """Write a record, and delete the segments that it lets go. See `ChannelLog.append`."""
        before: set[str] = set()

        def remembering(state: ChannelState) -> T | None:
            before.clear()
            before.update(state.retained)
            return prepare(state)

        record = self._run(self._log.append(remembering))
        if record is not None:
            self.delete(before - self.state.retained.keys())
        return record

    def put(self, key: str, body: bytes) -> None:
        """Write an object under a key that is only ever written here: repeating it changes nothing."""
        self._repeated(lambda: self.store.put(self.folder.object(key), body))

    def get(self, key: str) -> bytes:
        """Read an object. Raises `ObjectMissing`."""
        return self.store.get(self.folder.object(key)).body

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects that no record needs. What can't be deleted now is left for the sweep."""
        found = sorted(map(self.folder.object, keys))
        if found:
            with suppress(StoreError):
                self.store.delete(found)

    def _run(self, steps: Steps[R]) -> R:
        try:
            request = next(steps)
            while True:
                request = steps.send(self._answer(request))
        except StopIteration as end:
            value: R = end.value
            return value

    def _answer(self, request: Request) -> Answer:
        key = self.folder.slot(request.slot)
        if isinstance(request, PutSlot):
            body = request.body
            try:
                self._repeated(lambda: self.store.put_if_absent(key, body))
            except ObjectExists:
                return PutAnswer.EXISTS  # by whom, the log finds out: an earlier try of ours may have landed
            return PutAnswer.CREATED
        return self._read(request.slot)

    def _read(self, slot: int) -> bytes | None:
        """A process that comes late folds thousands of slots: one by one that would take minutes."""
        key = self.folder.slot(slot)
        found = self._ahead.pop(key, None)
        if found is None and self._streak >= STREAK:
            keys = [self.folder.slot(each) for each in range(slot, slot + min(self._streak, AHEAD))]
            with ThreadPoolExecutor(AHEAD, thread_name_prefix="recovery-channel") as pool:
                bodies = dict(zip(keys, pool.map(partial(peek_slot, self.store), keys), strict=True))
            # Slots are filled in order: what is behind a hole was written since, and is read again.
            self._ahead = {each: body for each, body in bodies.items() if body is not None}
            if len(self._ahead) < len(keys):
                self._streak = -AHEAD
            found = self._ahead.pop(key, None)
        elif found is None:
            found = peek_slot(self.store, key)
        self._streak = 0 if found is None else self._streak + 1
        return found

    def _repeated(self, request: Callable[[], object]) -> None:
        """The very same request, until it has a definite answer."""
        began, failures = self.clock(), 0
        while True:
            try:
                request()
                return
            except (StoreTimeout, StoreUnavailable):
                failures += 1
                pause_s = self._backoff.pause_s(failures, self._rng)
                if self.clock() - began + pause_s > self._deadline_s:
                    raise
            self.sleep(pause_s)
