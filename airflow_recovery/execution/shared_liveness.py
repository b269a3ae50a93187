"""Whether the process that makes a shared result is alive, without comparing two clocks.

Whoever makes it overwrites one object again and again. Whoever waits looks at that object's etag, and counts by its own
monotonic clock for how long it has seen no change. A maker that is taken for dead and is not loses its work, no more:
its attempt is fenced before another one is claimed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from airflow_recovery.errors import StoreError
from airflow_recovery.journal.journal import Journal

BEATS_PER_TIMEOUT = 6
"""A sign of life may be late or lost a few times before anybody loses patience."""


class Heartbeat:
    """Gives signs of life for one attempt while the ``with`` block runs. A store that does not answer stops nothing."""

    def __init__(self, journal: Journal, region: str, attempt: int, interval_s: float, log: logging.Logger) -> None:
        self._store = journal.store
        self._key = journal.layout.heartbeat(region, attempt)
        self._interval_s = interval_s
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        count = 0
        while not self._ended.wait(self._interval_s):
            count += 1
            try:
                self._store.put(self._key, str(count).encode())
            except StoreError as error:
                self._log.warning("A sign of life could not be given: %s", error)


def last_beat(journal: Journal, region: str, attempt: int) -> str | None:
    """What the newest sign of life looks like; `None` before the first one."""
    key = journal.layout.heartbeat(region, attempt)
    return next((info.etag for info in journal.store.list(key) if info.key == key), None)


class SilenceWatch:
    """Says when an attempt has given no new sign of life for ``timeout_s`` of this process's own time."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._seen: tuple[int, str | None] | None = None
        self._since_s = 0.0

    def is_silent(self, attempt: int, beat: str | None) -> bool:
        """Note what is seen now. True where nothing else has been seen for long enough."""
        if self._seen != (attempt, beat):
            self._seen, self._since_s = (attempt, beat), self._clock()
        return self._clock() - self._since_s >= self._timeout_s
