"""I10 of the sinks: hears of everything that takes effect in a target, and knows no more of it than that."""

from __future__ import annotations

from collections.abc import Mapping


class SinkLedger:
    """``modes``: the regions that commit to a sink, each with ``append`` or ``replace``. What is wrong goes to
    ``wrong``.
    """

    def __init__(self, modes: Mapping[str, str], wrong: list[str]) -> None:
        self.modes = dict(modes)
        self.applied: dict[str, list[int]] = {name: [] for name in modes}
        self.ever_applied: set[tuple[str, int]] = set()
        self._overwritten: dict[str, int] = {}
        self._wrong = wrong

    def took(self, region: str, attempt: int) -> None:
        """An attempt's rows became visible."""
        before = self.applied[region]
        if attempt <= self._overwritten.pop(region, 0):
            self._wrong.append(f"I10: {region}@{attempt} was committed again over the rows of somebody else")
        if attempt in before:
            self._wrong.append(f"I10: {region}@{attempt} was committed to its sink twice")
        elif before and self.modes[region] == "append":
            self._wrong.append(f"I10: {region}@{attempt} was appended to its sink, which has {region}@{before[-1]}")
        elif before and max(before) > attempt:
            self._wrong.append(f"I10: {region}@{attempt} was put in place of {region}@{max(before)}")
        before.append(attempt)
        self.ever_applied.add((region, attempt))

    def undone(self, region: str) -> None:
        """A person has removed what a region had committed, and what somebody has put in its place."""
        self.applied[region] = []
        self._overwritten.pop(region, None)

    def emptied(self, region: str, *, overwrites: bool) -> None:
        """Somebody has removed what a region had committed, and perhaps put other rows in its place."""
        latest = max(self.applied[region], default=0)
        self.undone(region)
        if overwrites:
            self._overwritten[region] = latest

    def restored(self, region: str) -> None:
        """Somebody has put back what the target held before the latest commit."""
        self.applied[region] = self.applied[region][:-1]
        self._overwritten.pop(region, None)

    def why_not_held(self, region: str, attempt: int) -> str | None:
        """Why the target does not hold the rows of that attempt, and of no other."""
        held = self.applied[region][-1:]
        return (
            None if held == [attempt] else f"I10: {region}@{attempt} is green, and its sink holds {held or 'nothing'}"
        )
