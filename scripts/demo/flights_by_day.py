"""How many flights each day has, counted in the CSV files: without Spark, and without any ledger."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import accumulate
from pathlib import Path


@dataclass(frozen=True)
class FlightsByDay:
    """``counts``: flights by day, the days in their order."""

    counts: dict[date, int]

    @classmethod
    def of_lake(cls, lake: Path) -> FlightsByDay:
        """From the daily files. Raises `ValueError` where a file's name is no date."""
        files = sorted((lake / "flights").glob("*/*.csv"), key=lambda path: path.name)
        return cls({date.fromisoformat(candidate.stem): _rows(candidate) for candidate in files})

    @property
    def total(self) -> int:
        """How many flights there are."""
        return sum(self.counts.values())

    @cached_property
    def _until(self) -> list[int]:
        return list(accumulate(self.counts.values()))

    def day_of(self, number: int) -> date:
        """The day of the ``number``-th flight (from 1); of 0 the first day, of more than there are the last."""
        days = list(self.counts)
        return days[min(bisect_left(self._until, number), len(days) - 1)]


def _rows(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines) - 1
