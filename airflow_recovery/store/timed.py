"""A store whose requests are timed, for metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject

Told = Callable[[str, float], None]
"""Hears of each request when it is over: ``put_if_absent``, ``put``, ``get``, ``list`` or ``delete``, and seconds."""


class TimedStore:
    """``inner``, and ``told`` hears how long each request took, whatever became of it. Changes nothing else.

    A listing is timed up to its first object: what its reader does between two objects is not the store's time.
    """

    def __init__(self, inner: ObjectStore, told: Told, clock: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._told = told
        self._clock = clock

    @property
    def base_uri(self) -> str:
        """That of the store below."""
        return self._inner.base_uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """Timed."""
        with self._timed("put_if_absent"):
            return self._inner.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """Timed."""
        with self._timed("put"):
            return self._inner.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Timed."""
        with self._timed("get"):
            return self._inner.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Timed up to the first object."""
        with self._timed("list"):
            found = iter(self._inner.list(prefix, start_after=start_after))
            first = next(found, None)
        if first is not None:
            yield first
            yield from found

    def delete(self, keys: Iterable[str]) -> None:
        """Timed."""
        with self._timed("delete"):
            self._inner.delete(keys)

    @contextmanager
    def _timed(self, request: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            yield
        finally:
            self._told(request, self._clock() - began_s)
