"""What a region that commits split by split writes into plans, claims and outcomes (docs/journal-format.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from airflow_recovery.model.codec import Key, later
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.records import AttemptTrace, Claim, Outcome
from airflow_recovery.model.region_plan import RegionPlan


@dataclass(frozen=True)
class AdoptedBatches:
    """A claim adopts the batches of attempt ``attempt`` with numbers below ``length``, without the ``dropped`` ones.

    Dropped are those that can't be used: an object is gone or altered, or one of the splits is not to be read any more.
    """

    attempt: int
    length: int
    dropped: tuple[int, ...] = later(())

    @property
    def numbers(self) -> tuple[int, ...]:
        """The batches that are adopted."""
        dropped = frozenset(self.dropped)
        return tuple(number for number in range(self.length) if number not in dropped)


@dataclass(frozen=True)
class CommittedBatchRef:
    """A batch that a finish is made of, and the content keys of its splits."""

    attempt: int
    number: int
    splits: tuple[str, ...]


@dataclass(frozen=True)
class LostSplit:
    """A split that a finish does without, within its loss budget."""

    free_text: ClassVar[frozenset[str]] = frozenset({"message"})

    key: str
    uri: str
    message: str


@dataclass(frozen=True)
class SplitMode(RegionMode):
    """Base of what this mode writes."""

    name: ClassVar[str] = "split"
    needs_own_application: ClassVar[bool] = True
    """Whether its vertices treat every row by itself is seen in Spark's plans, which a Connect server does not show."""


@dataclass(frozen=True)
class SplitPlan(SplitMode):
    """``split_source``: the vertex whose splits these are. ``pulls_splits``: which of them the region reads is decided
    while it runs (``assignment="dynamic"``)."""

    split_source: str = later("")
    pulls_splits: bool = later(False)


@dataclass(frozen=True)
class SplitClaim(SplitMode):
    """``base``: what the attempt takes over from earlier ones. The one place that says so.

    ``reading``: digest of the code and the side inputs that its batches are made of. An attempt takes over only from
    attempts that have the same.
    """

    base: tuple[AdoptedBatches, ...] = later(())
    reading: str | None = later(None)

    @property
    def attempts(self) -> tuple[int, ...]:
        """The earlier attempts whose batches ``base`` names."""
        return tuple(adopted.attempt for adopted in self.base)

    @property
    def batches_named(self) -> tuple[tuple[int, int], ...]:
        """How many batches of each attempt had been listed, as (attempt, length)."""
        return tuple((adopted.attempt, adopted.length) for adopted in self.base)

    @property
    def batches_used(self) -> tuple[tuple[int, int], ...]:
        """The adopted batches, as (attempt, number)."""
        return tuple((adopted.attempt, number) for adopted in self.base for number in adopted.numbers)


@dataclass(frozen=True)
class SplitOutcome(SplitMode):
    """``batches``: what the outputs are made of, each split exactly once. ``lost_splits``: what is not in it."""

    batches: Annotated[tuple[CommittedBatchRef, ...], Key("parts")] = later(())
    lost_splits: tuple[LostSplit, ...] = later(())

    @property
    def attempts(self) -> tuple[int, ...]:
        """The attempts whose work the finish is made of."""
        return tuple(batch.attempt for batch in self.batches)

    @property
    def batches_used(self) -> tuple[tuple[int, int], ...]:
        """The batches whose files the outputs have, as (attempt, number)."""
        return tuple((batch.attempt, batch.number) for batch in self.batches)


IN_RECORDS = {RegionPlan: SplitPlan, Claim: SplitClaim, Outcome: SplitOutcome, AttemptTrace: SplitOutcome}
