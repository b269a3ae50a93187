"""What one request to the API server may hold in memory: a store of which only so much may be read."""

from __future__ import annotations

import threading

from airflow_recovery.errors import ObjectTooLarge
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import MAX_OBJECT_BYTES, ObjectStore, StoredObject


class BudgetedStore(DelegatingStore):
    """``inner``, of which no more than ``total_bytes`` are read over the life of this object. For many threads.

    A read that goes beyond raises `ObjectTooLarge`: what its reader then holds is within the total. While reads are at
    work, more is in memory, by no more than `get_many` lets through at once. Listings and writes are not counted.
    """

    def __init__(self, inner: ObjectStore, total_bytes: int) -> None:
        super().__init__(inner)
        self._total_bytes = total_bytes
        self._left = total_bytes
        self._lock = threading.Lock()

    def get(self, key: str, max_bytes: int | None = MAX_OBJECT_BYTES) -> StoredObject:
        """Read ``key``. Raises `ObjectTooLarge` where the object is larger than what is left of the total."""
        left = self._left
        limit = left if max_bytes is None else min(left, max_bytes)
        try:
            stored = self.inner.get(key, limit)
        except ObjectTooLarge:
            if limit == max_bytes:
                raise
            raise self._spent(key) from None
        with self._lock:  # others have read since
            if len(stored.body) > self._left:
                raise self._spent(key)
            self._left -= len(stored.body)
        return stored

    def _spent(self, key: str) -> ObjectTooLarge:
        return ObjectTooLarge(
            f"{self.base_uri}/{key}: expected no more than {self._total_bytes} bytes to be read for one request, found "
            f"more: {self._total_bytes - self._left} were read, and this object does not fit into the rest. "
            "`airflow recovery show` has no such limit.",
            code="request-budget-used",
        )
