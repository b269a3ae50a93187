"""One run's journal as values: attempts by region, plans, publishes, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from airflow_recovery.verify.records import Claim, Committed, CommittedBatch, Lost, Named, Outcome, Plan, Publish, Reset


@dataclass(frozen=True)
class Entry:
    """One object: its key, its etag, and when it was stored by the store's own clock (where that is told)."""

    key: str
    etag: str
    stored_s: float | None


@dataclass(frozen=True)
class Attempt:
    """One attempt. ``entries``: the objects that are there, by kind, readable or not; contents only where readable."""

    of: Named
    entries: Mapping[str, Entry]
    claim: Claim | None = None
    outcome: Outcome | None = None
    reset: Reset | None = None
    lost: Lost | None = None
    committed: Committed | None = None
    batches: Mapping[int, CommittedBatch] = field(default_factory=dict)
    """By number, of an attempt that commits split by split."""

    def has(self, kind: str) -> bool:
        """Whether the journal has an object of this kind of the attempt, readable or not."""
        return kind in self.entries

    @property
    def is_finished(self) -> bool:
        """Its outcome is readable, and is a finish."""
        return self.outcome is not None and self.outcome.is_finished

    @property
    def oldest(self) -> int:
        """The first of the attempts that its finish is made of: its own, unless it took over batches."""
        batches = self.outcome.batches if self.outcome is not None else ()
        return min((batch.attempt for batch in batches), default=self.of.attempt)

    @property
    def is_open(self) -> bool:
        """It was claimed, and has neither finished nor been fenced."""
        return self.has("claim") and not self.has("outcome")


@dataclass(frozen=True)
class Region:
    """All attempts of a region above those that were purged (``purged``: the highest of them)."""

    name: str
    attempts: Mapping[int, Attempt]
    purged: int = 0

    @cached_property
    def claimed(self) -> list[int]:
        """The numbers of the attempts that have a claim, ascending."""
        return sorted(number for number, attempt in self.attempts.items() if attempt.has("claim"))

    @cached_property
    def latest_attempt(self) -> int:
        """The highest number that was ever claimed."""
        return max([self.purged, *self.claimed])

    @cached_property
    def current(self) -> Attempt | None:
        """The finish that counts: the highest one that no reset covers, in whole or in part."""
        reset = max((number for number, attempt in self.attempts.items() if attempt.has("reset")), default=0)
        valid = (n for n, attempt in self.attempts.items() if attempt.is_finished and min(n, attempt.oldest) > reset)
        return self.attempts.get(max(valid, default=-1))


@dataclass(frozen=True)
class History:
    """Everything that one reading of a run's journal found. ``where`` is its URI."""

    where: str
    regions: Mapping[str, Region]
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """By the hash in the key."""
    publishes: Mapping[int, Publish] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Key -> why it can't be read."""
    misplaced: Mapping[str, tuple[Named, str]] = field(default_factory=dict)
    """Key -> of which attempt the object there says it is, and its kind (``finish`` for a finished outcome)."""
    etags: Mapping[str, str] = field(default_factory=dict)

    def attempts(self) -> Iterator[Attempt]:
        """All attempts of the run, ordered by region and number."""
        for region in self.regions.values():
            for number in sorted(region.attempts):
                yield region.attempts[number]

    def finished(self) -> Iterator[tuple[Attempt, Outcome]]:
        """The attempts with a finish, in the same order, each with its outcome."""
        for attempt in self.attempts():
            if attempt.outcome is not None and attempt.outcome.is_finished:
                yield attempt, attempt.outcome

    def attempt(self, of: Named) -> Attempt | None:
        """One attempt; `None` where there is no object of it."""
        region = self.regions.get(of.region)
        return None if region is None else region.attempts.get(of.attempt)

    def is_purged(self, of: Named) -> bool:
        """Its objects may be gone, since the run was purged once."""
        region = self.regions.get(of.region)
        return region is not None and of.attempt <= region.purged

    @cached_property
    def counts(self) -> dict[str, int]:
        """The attempt that counts of each region that has one."""
        currents = {name: region.current for name, region in self.regions.items()}
        return {name: current.of.attempt for name, current in currents.items() if current is not None}

    @cached_property
    def newest_publish(self) -> int:
        """The number of the newest publish, 0 where there is none."""
        return max(self.publishes, default=0)

    @cached_property
    def open_attempts(self) -> list[Attempt]:
        """The attempts without an outcome: their drivers are running, or died."""
        return [attempt for attempt in self.attempts() if attempt.is_open]
