"""How far each attempt came, of a region that commits split by split.

A page follows a run at work, and asks again and again. Parts are written once, so how many splits one has is read once
for each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt
from airflow_recovery.model.records import Claim, Outcome
from airflow_recovery.splits.committed_batches import numbers_of
from airflow_recovery.splits.mode import PartRef, SplitClaim, SplitOutcome
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.mode import AttemptProgress, StoryMode

MAX_REMEMBERED = 100_000


@dataclass(frozen=True)
class SplitsDone(AttemptProgress):
    """Counted in splits."""

    unit: ClassVar[str] = "splits"


@dataclass(frozen=True)
class _Count:
    splits: int
    lost: int


_counts: WeakKeyDictionary[ObjectStore, dict[str, _Count]] = WeakKeyDictionary()
"""By the part's key."""


def splits_of(journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> SplitsDone | None:
    """`None` of an attempt that does not commit split by split, or has done nothing, or whose parts were purged.

    ``claim``: its own, where that is known.
    """
    outcome = attempt.outcome
    if outcome is not None and (ended := SplitOutcome.of(outcome)).parts:
        done = _size(ended.parts)
        kept = _size(part for part in ended.parts if part.attempt != attempt.number)
        return SplitsDone(done, kept, len(ended.lost_splits), done)
    base = numbers_of(SplitClaim.of(claim).base) if claim is not None else []
    if not attempt.parts and not base:
        return None
    try:
        own = _counted(journal, region, [(attempt.number, number) for number in range(attempt.parts)])
        taken = _counted(journal, region, base)
    except ObjectMissing:
        return None
    kept = sum(count.splits for count in taken)
    return SplitsDone(
        done=kept + sum(count.splits for count in own),
        kept=kept,
        lost=sum(count.lost for count in (*own, *taken)),
        total=None,
    )


def _counted(journal: Journal, region: str, parts: list[tuple[int, int]]) -> list[_Count]:
    """Of each part, by attempt and number. Reads those that this process has not read yet."""
    seen = _counts.setdefault(journal.store, {})
    keys = [journal.layout.part(region, *part) for part in parts]
    wanted = [each for each, key in zip(parts, keys, strict=True) if key not in seen]
    found = {key: seen[key] for key in keys if key in seen}
    if len(seen) + len(wanted) > MAX_REMEMBERED:
        seen.clear()
    for part in journal.read_parts_of(region, wanted) if wanted else ():
        key = journal.layout.part(region, part.attempt, part.number)
        found[key] = seen[key] = _Count(len(part.splits), len(part.splits) if part.lost is not None else 0)
    return [found[key] for key in keys]


def _size(parts: Iterable[PartRef]) -> int:
    return sum(len(part.splits) for part in parts)


class SplitStory(StoryMode):
    """Tells how many splits are done."""

    def progress(self, journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> AttemptProgress | None:
        """As `splits_of`."""
        return splits_of(journal, region, attempt, claim)

    def summary(self, outcome: Outcome) -> dict[str, Any]:
        """How many splits it read, how many earlier attempts had read, and which are lost."""
        ended = SplitOutcome.of(outcome)
        if not ended.parts:
            return {}
        lost = {split.key: split for split in ended.lost_splits}
        counts = {True: 0, False: 0}
        for part in ended.parts:
            counts[part.attempt == outcome.attempt] += len(set(part.splits) - lost.keys())
        told = {split.uri: split.message for split in lost.values()}
        return {"splits": {"read": counts[True], "kept": counts[False], "lost": told}}

    def counted(self, outcome: Outcome) -> Mapping[str, int]:
        """The splits that the result does without."""
        lost = len(SplitOutcome.of(outcome).lost_splits)
        return {"ledger.splits": lost} if lost else {}


MODE = SplitStory()
