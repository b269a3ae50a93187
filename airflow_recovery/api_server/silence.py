"""After a time-out, the API server sends no request to the bucket for a while. Requests to other buckets go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_recovery.errors import StoreSilent, StoreTimeout
from airflow_recovery.locations import scheme_of, split_uri
from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore

PAUSE_S = 10.0
"""How long the API server sends no request to a bucket after a time-out."""


class Silence:
    """The buckets that have timed out. Safe for threads. ``clock`` returns seconds; only differences count."""

    def __init__(self, pause_s: float = PAUSE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._until: dict[str, float] = {}

    def check(self, bucket: str) -> None:
        """Raise `StoreSilent` if the bucket has timed out within the last ``pause_s`` seconds."""
        left_s = self._until.get(bucket, -math.inf) - self._clock()
        if left_s > 0:
            raise StoreSilent(
                f"The store {bucket} does not answer, and is asked again in {math.ceil(left_s)} s.", left_s
            )

    def begin(self, bucket: str) -> None:
        """Record a time-out of the bucket."""
        now = self._clock()
        self._until = {each: until for each, until in self._until.items() if until > now}
        self._until[bucket] = now + self._pause_s


class HeededStore(DelegatingStore):
    """Send requests to ``inner``, unless its bucket has just timed out. Record the time-outs."""

    def __init__(self, inner: ObjectStore, silence: Silence) -> None:
        super().__init__(inner)
        self._silence = silence
        uri = inner.base_uri
        self._bucket = split_uri(uri)[0] if scheme_of(uri) else uri

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """List as `ObjectStore.list` does. Each page may time out."""
        with self._around("list", prefix):
            yield from self.inner.list(prefix, start_after=start_after)

    @contextmanager
    def _around(self, request: str, key: str) -> Iterator[None]:
        del request, key
        self._silence.check(self._bucket)
        try:
            yield
        except StoreTimeout:
            self._silence.begin(self._bucket)
            raise

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that only some stores have, such as ``expiry_rules``."""
        return getattr(self.inner, name)


class HeededStores:
    """Open journal, results and other locations of ``stores`` as `HeededStore`."""

    def __init__(self, stores: Any, silence: Silence) -> None:
        self._stores = stores
        self._silence = silence
        self.may_open = stores.may_open
        self.journal = HeededStore(stores.journal, silence)
        self.results = HeededStore(stores.results, silence)

    def open_location(self, location: str) -> ObjectStore:
        """Open a location as `airflow_recovery.hooks.stores.Stores.open_location` does."""
        store = self._stores.open_location(location)
        return self.results if store is self.results.inner else HeededStore(store, self._silence)
