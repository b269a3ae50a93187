"""A store whose requests are timed, for metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_recovery.store.delegating import DelegatingStore
from airflow_recovery.store.object_store import ObjectStore

RequestListener = Callable[[str, float], None]
"""Called after each request with its method's name, such as ``put_if_absent``, and how many seconds it took."""


class TimedStore(DelegatingStore):
    """``inner``, with a ``listener`` that is called after each request, failed ones too. Changes nothing else.

    A listing is timed up to its first object: what its reader does between two objects is not the store's time.
    """

    def __init__(
        self, inner: ObjectStore, listener: RequestListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(inner)
        self._listener = listener
        self._clock = clock

    @contextmanager
    def _around(self, request: str, key: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            yield
        finally:
            self._listener(request, self._clock() - began_s)
