"""A store whose requests are timed, for metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject

RequestListener = Callable[[str, float], None]
"""Called after each request with its method's name, such as ``put_if_absent``, and how many seconds it took."""


class TimedStore:
    """``inner``, with a ``listener`` that is called after each request, failed ones too. Changes nothing else.

    A listing is timed up to its first object: what its reader does between two objects is not the store's time.
    """

    def __init__(
        self, inner: ObjectStore, listener: RequestListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._inner = inner
        self._listener = listener
        self._clock = clock

    @property
    def base_uri(self) -> str:
        """The base URI of ``inner``."""
        return self._inner.base_uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """As `ObjectStore.put_if_absent`."""
        with self._timed("put_if_absent"):
            return self._inner.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """As `ObjectStore.put`."""
        with self._timed("put"):
            return self._inner.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """As `ObjectStore.get`."""
        with self._timed("get"):
            return self._inner.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`, timed up to the first object."""
        with self._timed("list"):
            listed = iter(self._inner.list(prefix, start_after=start_after))
            first = next(listed, None)
        if first is not None:
            yield first
            yield from listed

    def delete(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete`."""
        with self._timed("delete"):
            self._inner.delete(keys)

    @contextmanager
    def _timed(self, request: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            yield
        finally:
            self._listener(request, self._clock() - began_s)
