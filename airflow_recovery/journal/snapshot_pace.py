"""How often a full snapshot is taken (FLIP-383: ``execution.batch.job-recovery.snapshot.min-pause``)."""

from __future__ import annotations

import time
from collections.abc import Callable

MIN_PAUSE_S = 180.0
"""Flink's default."""


class SnapshotPace:
    """Lets one writer take its first full snapshot at once, and the next ones ``min_pause_s`` after the last.

    In between there are the finishes themselves: each outcome is an incremental snapshot. ``now_s`` is compared with
    store times of other writers' snapshots, so a clock that is wrong makes snapshots more or less frequent, and nothing
    else (fault 33). Not for several threads.
    """

    def __init__(self, min_pause_s: float = MIN_PAUSE_S, now_s: Callable[[], float] = time.time) -> None:
        self._min_pause_s = min_pause_s
        self._now_s = now_s
        self._last_s: float | None = None

    def begins(self, others_s: float | None = None) -> bool:
        """Is a full snapshot due? If so, it counts as taken now. ``others_s``: when the last one was stored, if any."""
        now_s = self._now_s()
        taken_s = [number for number in (self._last_s, others_s) if number is not None]
        if taken_s and now_s - max(taken_s) < self._min_pause_s:
            return False
        self._last_s = now_s
        return True
