"""Which splits earlier attempts have failed on: by their failures, and by how far they came. Pure.

See docs/splits.md#poison-splits.

An attempt whose code raised says which split it was (`SPLITS_LABEL` of its failure). One whose driver was killed, or
ran out of memory, says nothing; but batches are a pure function of what was to be read (`planned_batches`), and what
it has committed says how far it came: it was reading the first batches after those. Their splits are suspects, no more:
drivers die for other reasons, also before they have read anything. A split is poison when a driver has died that read
nothing else. Such a driver writes a pending failure before it begins (`airflow_recovery.driver.exit_report`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_recovery.driver.failure_class import CLASS_LABEL, FailureClass, classify, label_of
from airflow_recovery.errors import Failure
from airflow_recovery.model.split import Split
from airflow_recovery.splits.batches import ALONE, planned_batches

SPLITS_LABEL = "splits"
"""Label of a failure: the content keys of the splits that failed, with commas between them."""

MAX_FAILURES = 3
"""After so many a split is poison: the region fails and names it, or does without it."""

_DEATHS = frozenset(
    failure_class.value
    for failure_class in (FailureClass.DRIVER_LOST, FailureClass.OUT_OF_MEMORY, FailureClass.EXECUTOR_LOST)
)


@dataclass(frozen=True)
class EarlierAttempt:
    """One earlier attempt of the same code and side inputs: the content keys that it adopted and committed.

    ``failure`` is `None` where it did not fail by itself.
    """

    adopted: frozenset[str]
    committed: frozenset[str]
    failure: Failure | None


@dataclass(frozen=True)
class Record:
    """What earlier attempts say of the splits, by content key. ``counts``: how often it has failed."""

    counts: Mapping[str, int]
    suspicion: Mapping[str, int]
    """As `planned_batches` takes it."""
    deadly: frozenset[str]
    """Those that a driver has died of, reading nothing else."""

    def is_poison(self, key: str) -> bool:
        """Whether the split must not be read any more: it would kill this driver, too."""
        return key in self.deadly and self.counts[key] >= MAX_FAILURES


NOTHING = Record({}, {}, frozenset())


def is_death(failure: Failure) -> bool:
    """Whether a driver or an executor was lost, or out of memory: the code itself has not raised."""
    return (label_of(failure, CLASS_LABEL) or classify(failure).value) in _DEATHS


def record_of(
    assigned: Sequence[Split], earlier: Sequence[EarlierAttempt], *, batch_bytes: int, threads: int
) -> Record:
    """The record of ``earlier``, the oldest attempt first. ``threads``: how many batches a driver reads at a time."""
    counts: Counter[str] = Counter()
    suspicion: Counter[str] = Counter()
    deadly: set[str] = set()
    for attempt in earlier:
        failure = attempt.failure
        if failure is None:
            continue
        named = label_of(failure, SPLITS_LABEL)
        if named:
            keys = named.split(",")
            counts.update(keys)
            suspicion.update(dict.fromkeys(keys, ALONE))
            deadly.update(keys if is_death(failure) else ())
        elif is_death(failure):
            todo = [split for split in assigned if split.key not in attempt.adopted]
            batches = planned_batches(todo, batch_bytes=batch_bytes, suspicion=suspicion)
            left = [batch for batch in batches if not batch.keys <= attempt.committed]
            at_once = [batch for batch in left[:threads] if not batch.may_be_poison] or left[:1]
            keys = [key for batch in at_once for key in batch.keys - attempt.committed]
            suspicion.update(keys)
            for key in keys:
                counts[key] = min(counts[key] + 1, MAX_FAILURES - 1)
    return Record(dict(counts), dict(suspicion), frozenset(deadly))
