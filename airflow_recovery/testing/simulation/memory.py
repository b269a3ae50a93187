"""The stores of a simulation: dictionaries in key order and virtual time, and how a process sees them."""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar, cast

from airflow_recovery.errors import ObjectExists, ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import JournalListener
from airflow_recovery.model.records import Record, RunIdentity
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject
from airflow_recovery.testing.simulation.strands import current_runner

R = TypeVar("R", bound=Record)


class Clock:
    """The one time of a simulation. Stands still but for `advance`.

    ``wall_ahead_s``: by how much the clocks of all machines have jumped.
    """

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        self.wall_ahead_s = 0.0

    @property
    def wall_s(self) -> float:
        """What a machine takes for the time."""
        return self.now_s + self.wall_ahead_s

    def advance(self, to_s: float) -> None:
        """To ``to_s``, unless that is over."""
        self.now_s = max(self.now_s, to_s)

    def sleep(self, seconds: float) -> None:
        """What a process calls that waits."""
        current_runner().sleep(self.now_s + seconds)


class WithClock(Protocol):
    """A store of a simulation."""

    clock: Clock


class MemoryStore:
    """An `ObjectStore` in a dictionary. ``on_put(key, body, replaced)`` and ``on_delete(key)`` hear of each change.

    ``ahead_s``: by how much its own clock, which says when an object was stored, has jumped.
    """

    def __init__(self, base_uri: str, clock: Clock) -> None:
        self.base_uri = base_uri
        self.is_conditional = True
        self.on_put: Callable[[str, bytes, bool], None] = lambda key, body, replaced: None
        self.on_delete: Callable[[str], None] = lambda key: None
        self.clock = clock
        self.ahead_s = 0.0
        self._objects: dict[str, StoredObject] = {}
        self._keys: list[str] = []

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Create. ``is_conditional`` switched off overwrites: the negative control."""
        if key in self._objects and self.is_conditional:
            raise ObjectExists(key)
        return self.put(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Create or overwrite."""
        replaced = key in self._objects
        if not replaced:
            insort(self._keys, key)
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        info = ObjectInfo(key, len(body), etag, self.clock.now_s + self.ahead_s)
        self._objects[key] = StoredObject(info, body)
        self.on_put(key, body, replaced)
        return info

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read."""
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectMissing(key)
        return stored

    def page(self, prefix: str, start_after: str, size: int | None) -> list[ObjectInfo]:
        """The first ``size`` objects of a listing."""
        at = bisect_left(self._keys, max(prefix, start_after + "\0" if start_after else ""))
        infos: list[ObjectInfo] = []
        for key in self._keys[at:]:
            if not key.startswith(prefix) or len(infos) == size:
                break
            infos.append(self._objects[key].info)
        return infos

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """In key order, as it is now."""
        return iter(self.page(prefix, start_after, None))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove what is there of ``keys``."""
        for key in keys:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
                self.on_delete(key)

    def copied(self) -> dict[str, StoredObject]:
        """All objects, for a backup."""
        return dict(self._objects)

    def bring_back(self, objects: dict[str, StoredObject]) -> None:
        """Have these objects and no others. Nobody hears of it."""
        self._objects, self._keys = dict(objects), sorted(objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def has(self, key: str, size: int, etag: str) -> bool:
        """The object is there as described."""
        stored = self._objects.get(key)
        return stored is not None and (stored.info.size, stored.info.etag) == (size, etag)


class ProcessStore:
    """``inner`` as a process sees it: before each request another one may go on, between two pages of a listing too.

    ``way`` is what lies between: the same store, or one with faults.
    """

    def __init__(self, inner: MemoryStore, way: ObjectStore | None = None, page_keys: int | None = None) -> None:
        self.inner = inner
        self.base_uri = inner.base_uri
        self.clock = inner.clock
        self._way = way if way is not None else inner
        self._page_keys = page_keys

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """One request."""
        current_runner().switch(f"PUT {key}")
        return self._way.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """One request."""
        current_runner().switch(f"PUT {key}")
        return self._way.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """One request."""
        current_runner().switch(f"GET {key}")
        return self._way.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """One request a page; what is written in between shows on later pages only."""
        while True:
            current_runner().switch(f"LIST {prefix}")
            if self._page_keys is None:
                yield from self._way.list(prefix, start_after=start_after)
                return
            for _ in self._way.list(f"{prefix}\0"):  # its faults
                pass
            page = self.inner.page(prefix, start_after, self._page_keys)
            yield from page
            if len(page) < self._page_keys:
                return
            start_after = page[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        """One request."""
        current_runner().switch("DELETE")
        self._way.delete(keys)


class _NoJitter(random.Random):
    """Pauses are not what a simulation varies: who goes on is."""

    def random(self) -> float:
        return 0.5


_NO_JITTER = _NoJitter(0)
_decoded: dict[tuple[type[Any], RunIdentity, str, bytes], Any] = {}


class SimulatedJournal(Journal):
    """The real journal in virtual time. What was read once is not parsed again: that would be most of the time."""

    def __init__(
        self, store: ObjectStore, identity: RunIdentity, *, writer: str, listener: JournalListener | None = None
    ) -> None:
        clock = cast("WithClock", store).clock
        super().__init__(
            store,
            identity,
            writer=writer,
            listener=listener,
            sleep=clock.sleep,
            clock=lambda: clock.now_s,
            rng=_NO_JITTER,
        )

    def _decode(self, kind: type[R], body: bytes, key: str) -> R:
        known = kind, self.identity, key, body
        if known not in _decoded:
            if len(_decoded) > _MOST_DECODED:
                _decoded.clear()
            _decoded[known] = super()._decode(kind, body, key)
        return cast("R", _decoded[known])


_MOST_DECODED = 20_000
