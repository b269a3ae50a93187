"""Whether an attempt's driver is alive, without comparing two clocks.

The driver overwrites one object again and again (`airflow_recovery.driver.heartbeat`). Whoever waits looks at that
object, and counts by its own monotonic clock for how long it has seen no change. An attempt that is taken for dead and
is not loses its work, no more: it is fenced before another one is claimed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Claim


@dataclass(frozen=True)
class HeartbeatTimeouts:
    """For how long a heartbeat is waited for. ``timeout_s`` 0: not at all, an open attempt is ended at once."""

    timeout_s: float = 0.0
    poll_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep

    @classmethod
    def of(cls, timeout_s: float) -> HeartbeatTimeouts:
        """With looks often enough for that time-out."""
        return cls(timeout_s, poll_s=min(cls.poll_s, max(0.1, timeout_s / 10)))


NO_HEARTBEAT_TIMEOUTS = HeartbeatTimeouts()


def last_beat(journal: Journal, region: str, attempt: int) -> str | None:
    """What the newest heartbeat looks like; `None` before the first one."""
    key = journal.layout.heartbeat(region, attempt)
    return next((info.etag for info in journal.store.list(key) if info.key == key), None)


def beat_of(journal: Journal, claim: Claim) -> Beat | None:
    """The newest heartbeat of this very claim; `None` before the first one.

    A beat with another tag is not one of it, although it has the region's name and the attempt's number: its driver
    belongs to a journal that was deleted (faults 18, 77).
    """
    try:
        stored = journal.store.get(journal.layout.heartbeat(claim.region, claim.attempt))
    except ObjectMissing:
        return None
    beat = Beat.from_bytes(stored.body)
    return beat if beat is not None and beat.tag == claim.tag else None


class HeartbeatWatch:
    """Says when an attempt has given no new heartbeat for ``timeout_s`` of this process's own time."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._seen: tuple[int, object] | None = None
        self._since_s = 0.0

    def has_timed_out(self, attempt: int, beat: object) -> bool:
        """Note what is seen now. True where nothing else has been seen for long enough."""
        if self._seen != (attempt, beat):
            self._seen, self._since_s = (attempt, beat), self._clock()
        return self._clock() - self._since_s >= self._timeout_s
