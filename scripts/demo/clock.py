"""How long a demo takes, and its parts."""

from __future__ import annotations

import time


class Clock:
    """Begins when it is made. As a text: ``152 s: start 15 s, act one 41 s, ...``."""

    def __init__(self) -> None:
        self._begun = self._lap = time.monotonic()
        self._laps: list[tuple[str, float]] = []

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._begun

    def lap(self, name: str) -> None:
        """What has gone since the last one was ``name``."""
        now = time.monotonic()
        self._laps.append((name, now - self._lap))
        self._lap = now

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self._laps)
        return f"{self.seconds:.0f} s: {parts}"
