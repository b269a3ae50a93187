"""One process's access to one channel: its log over a store, and its objects."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from airflow_recovery.errors import StoreError
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.write_once import DEFAULT_BACKOFF, Backoff, PeekedSlots
from airflow_recovery.streaming.appending import ChannelLog
from airflow_recovery.streaming.channel_records import ChannelIdentity, ChannelRecord
from airflow_recovery.streaming.channel_state import ChannelState
from airflow_recovery.streaming.folder import ChannelFolder

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
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.store = store
        self.folder = ChannelFolder(identity)
        self.clock = clock
        self.sleep = sleep
        self._log = ChannelLog(identity, writer)
        self._slots = PeekedSlots(
            store,
            self.folder.slots,
            deadline_s=deadline_s,
            backoff=backoff,
            clock=clock,
            sleep=sleep,
            rng=random.Random(writer),
        )

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
        return self._slots.run(self._log.refresh(most))

    def is_end(self) -> bool:
        """Whether nothing stands behind what is folded: the store confirms it. One request."""
        return self._slots.get(self._log.tail) is None

    def first_slot(self) -> bytes | None:
        """The bytes of the log's first record, `None` where there is none yet. One request."""
        return self._slots.peek(0)

    def append(self, prepare: Callable[[ChannelState], T | None]) -> T | None:
        """Write a record, and delete the segments that it lets go. See `WriteOnceLog.append`."""
        before: set[str] = set()

        def remembering(state: ChannelState) -> T | None:
            before.clear()
            before.update(state.retained)
            return prepare(state)

        record = self._slots.run(self._log.append(remembering))
        if record is not None:
            self.delete(before - self.state.retained.keys())
        return record

    def put(self, key: str, body: bytes) -> None:
        """Write an object under a key that is only ever written here: repeating it changes nothing."""
        self._slots.put_object(self.folder.object(key), body)

    def get(self, key: str) -> bytes:
        """Read an object. Raises `ObjectMissing`."""
        return self.store.get(self.folder.object(key)).body

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects that no record needs. What can't be deleted now is left for the sweep."""
        objects = sorted(map(self.folder.object, keys))
        if objects:
            with suppress(StoreError):
                self.store.delete(objects)
