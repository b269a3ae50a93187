"""A base for stores that stand before another one, and time, count, limit or disturb what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectInfo, ObjectStore, StoredObject


class DelegatingStore:
    """An `ObjectStore` that hands every request to ``inner``. Changes nothing by itself.

    A subclass says in `_around` what happens around every request, or overrides the methods that it changes.
    """

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @property
    def base_uri(self) -> str:
        """The base URI of ``inner``."""
        return self.inner.base_uri

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        """As `ObjectStore.put_if_absent`."""
        with self._around("put_if_absent", key):
            return self.inner.put_if_absent(key, body)

    def put(self, key: str, body: bytes) -> ObjectInfo:
        """As `ObjectStore.put`."""
        with self._around("put", key):
            return self.inner.put(key, body)

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """As `ObjectStore.get`."""
        with self._around("get", key):
            return self.inner.get(key, max_bytes)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`. What its reader does between two objects is no part of the request."""
        with self._around("list", prefix):
            listed = iter(self.inner.list(prefix, start_after=start_after))
            first = next(listed, None)
        if first is not None:
            yield first
            yield from listed

    def delete(self, keys: Iterable[str]) -> None:
        """As `ObjectStore.delete`."""
        batch = [*keys]
        with self._around("delete", " ".join(batch)):
            self.inner.delete(batch)

    def _around(self, request: str, key: str) -> AbstractContextManager[None]:
        """Entered before a request, left after it; of a listing, after its first object.

        ``request`` is the name of the method, ``key`` its key or prefix; of a deletion its keys, joined by spaces.
        """
        del request, key
        return nullcontext()
