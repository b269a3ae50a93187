"""How far each attempt came, of a region that commits split by split.

A page follows a run at work, and asks again and again. A committed batch never changes, so a process reads only once
how many splits it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from airflow_recovery.errors import ObjectMissing
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.model.records import Claim, Outcome
from airflow_recovery.splits.committed_batches import numbers_of
from airflow_recovery.splits.mode import CommittedBatchRef, SplitClaim, SplitOutcome
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.story.mode import AttemptProgress, StoryMode

MAX_REMEMBERED = 100_000


@dataclass(frozen=True)
class SplitsDone(AttemptProgress):
    """How many splits of an attempt are committed, adopted, and lost."""

    unit: ClassVar[str] = "splits"


@dataclass(frozen=True)
class _Count:
    splits: int
    lost: int


_counts: WeakKeyDictionary[ObjectStore, dict[str, _Count]] = WeakKeyDictionary()
"""By the key of the committed batch."""


def splits_of(journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> SplitsDone | None:
    """How far ``attempt`` came. ``claim``: its own, where that is known, for the batches that it adopts.

    `None` where it does not commit split by split, has done nothing yet, or its batches were purged.
    """
    outcome = attempt.outcome
    if outcome is not None and (ended := SplitOutcome.of(outcome)).batches:
        done = _size(ended.batches)
        kept = _size(batch for batch in ended.batches if batch.attempt != attempt.number)
        return SplitsDone(done, kept, len(ended.lost_splits), done)
    base = numbers_of(SplitClaim.of(claim).base) if claim is not None else []
    if not attempt.batches and not base:
        return None
    try:
        own = _counted(journal, region, [(attempt.number, number) for number in range(attempt.batches)])
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


def _counted(journal: Journal, region: str, batches: list[tuple[int, int]]) -> list[_Count]:
    """Of each batch, by attempt and number. Reads those that this process has not read yet."""
    seen = _counts.setdefault(journal.store, {})
    keys = [journal.layout.batch(region, *batch) for batch in batches]
    wanted = [number for number, key in zip(batches, keys, strict=True) if key not in seen]
    counts = {key: seen[key] for key in keys if key in seen}
    if len(seen) + len(wanted) > MAX_REMEMBERED:
        seen.clear()
    for batch in journal.read_committed_batches(region, wanted) if wanted else ():
        key = journal.layout.batch(region, batch.attempt, batch.number)
        counts[key] = seen[key] = _Count(len(batch.splits), len(batch.splits) if batch.lost is not None else 0)
    return [counts[key] for key in keys]


def _size(batches: Iterable[CommittedBatchRef]) -> int:
    return sum(len(batch.splits) for batch in batches)


class SplitStory(StoryMode):
    """What commands, the REST API and the tab show of such a region."""

    def progress(self, journal: Journal, region: str, attempt: Attempt, claim: Claim | None) -> AttemptProgress | None:
        """As `splits_of`."""
        return splits_of(journal, region, attempt, claim)

    def summary(self, outcome: Outcome) -> dict[str, Any]:
        """How many splits it read, how many earlier attempts had read, and which are lost."""
        ended = SplitOutcome.of(outcome)
        if not ended.batches:
            return {}
        lost = {split.key: split for split in ended.lost_splits}
        counts = {True: 0, False: 0}
        for batch in ended.batches:
            counts[batch.attempt == outcome.attempt] += len(set(batch.splits) - lost.keys())
        messages = {split.uri: split.message for split in lost.values()}
        return {"splits": {"read": counts[True], "kept": counts[False], "lost": messages}}

    def counted(self, outcome: Outcome) -> Mapping[str, int]:
        """The splits that the result does without."""
        lost = len(SplitOutcome.of(outcome).lost_splits)
        return {"ledger.splits": lost} if lost else {}

    def goes_on_from(self, state: RegionState) -> str:
        """The batches that it has committed: what is made of other code adopts none of them."""
        kept = sum(attempt.batches for n, attempt in state.attempts.items() if n > state.invalid_up_to)
        return f"{kept} committed batch{'' if kept == 1 else 'es'}" if kept else ""


MODE = SplitStory()
