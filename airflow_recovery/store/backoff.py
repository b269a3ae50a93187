"""Pauses between repeated requests."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Backoff:
    """Pauses between repeated requests: doubling from ``initial_s`` up to ``cap_s``, the upper half of each random.

    The fixed lower half bounds the number of requests; the random half keeps the workers of a storm apart.
    """

    initial_s: float = 0.2
    cap_s: float = 10.0

    def pause_s(self, failures: int, rng: random.Random) -> float:
        """The pause after that many failures in a row (1 or more)."""
        whole = min(self.cap_s, self.initial_s * 2.0 ** min(failures - 1, 60))
        return whole / 2 + rng.random() * whole / 2


DEFAULT_BACKOFF = Backoff()
