"""How far a region that commits split by split has come: for the task log, and for whoever looks while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from airflow_recovery.model.split import Split
from airflow_recovery.results.sweep_report import size_text


@dataclass(frozen=True)
class SplitCounts:
    """Splits and bytes (as far as they are known) that are committed, of all; seconds until the end at this pace."""

    done: int
    total: int
    bytes_done: int
    bytes_total: int
    left_s: float | None = None

    def text(self) -> str:
        """One line for people."""
        size = f", {size_text(self.bytes_done)} of {size_text(self.bytes_total)}" if self.bytes_total else ""
        left = "" if self.left_s is None or self.done >= self.total else f"; the end is about {_span(self.left_s)} away"
        return f"{self.done} of {self.total} splits are committed{size}{left}"


class SplitProgress:
    """Counts what is committed. ``adopted``: the content keys that earlier attempts have read."""

    def __init__(
        self, assigned: Iterable[Split], adopted: Collection[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        splits = list(assigned)
        adopted_splits = [split for split in splits if split.key in adopted]
        self._total, self._weight = len(splits), sum(split.weight for split in splits)
        self._done, self._done_weight = len(adopted_splits), sum(split.weight for split in adopted_splits)
        self._bytes = sum(split.size for split in splits)
        self._done_bytes = sum(split.size for split in adopted_splits)
        self._adopted_weight = self._done_weight
        self._clock = clock
        self._started = clock()
        self._lock = threading.Lock()

    def committed(self, splits: Iterable[Split]) -> SplitCounts:
        """Count ``splits`` as committed, and return all counts. Thread-safe."""
        with self._lock:
            for split in splits:
                self._done += 1
                self._done_weight += split.weight
                self._done_bytes += split.size
        return self.counts()

    def counts(self) -> SplitCounts:
        """The counts now. The time left is estimated from the bytes that this attempt itself has read."""
        with self._lock:
            read = self._done_weight - self._adopted_weight
            spent = self._clock() - self._started
            left = spent * (self._weight - self._done_weight) / read if read else None
            return SplitCounts(self._done, self._total, self._done_bytes, self._bytes, left)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
