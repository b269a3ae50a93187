"""One region as the checker sees it: what its journal objects say, read as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Region:
    """One region as its objects tell it. ``floor``: the highest attempt of what was purged, first at ``closed_at``."""

    floor: int = 0
    closed_at: int = 0
    claims: dict[int, dict[str, Any]] = field(default_factory=dict)
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)
    resets: set[int] = field(default_factory=set)
    committed: set[int] = field(default_factory=set)
    abandoned: set[int] = field(default_factory=set)
    released_at: dict[int, int] = field(default_factory=dict)
    claimed_at: dict[int, int] = field(default_factory=dict)

    def close(self, n: int, moment: int) -> None:
        """A purge has made all attempts up to ``n`` void."""
        if n > self.floor:
            self.floor, self.closed_at = n, moment

    def let_go_at(self, n: int) -> int | None:
        """The moment at which an attempt was released, or its run closed; `None`: neither."""
        return self.released_at.get(n, self.closed_at if n <= self.floor else None)

    @property
    def latest_attempt(self) -> int:
        """The highest number ever claimed."""
        return max([self.floor, *self.claims])

    def has_finished(self, n: int) -> bool:
        """With a result."""
        return n in self.outcomes and self.outcomes[n]["state"] == "FINISHED"

    def has_failed(self, n: int) -> bool:
        """Fenced: it never counts."""
        return n in self.outcomes and not self.has_finished(n)

    @property
    def current(self) -> int:
        """The highest finish that counts; 0 if none."""
        mark = max([self.floor, *self.resets])
        return max(
            (n for n in self.outcomes if n > mark and self.has_finished(n) and self._oldest(n) > mark), default=0
        )

    def _oldest(self, n: int) -> int:
        """The first attempt that the finish is made of: batches of what was reset count no more than that."""
        return min((batch["attempt"] for batch in self.outcomes[n].get("parts", ())), default=n)

    def finish(self, n: int) -> dict[str, Any]:
        """The outcome of a finished attempt."""
        return self.outcomes[n]
