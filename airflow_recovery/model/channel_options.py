"""What a user chooses about a channel: how a consumer reconnects, what a full one does, what may be lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import JobDefinitionError


class Reconnect(str, Enum):
    """Where a consumer that restarts goes on."""

    REWIND = "rewind"
    """At its last checkpoint: nothing is lost that is still retained."""

    LATEST = "latest"
    """At the head, for fresh results: what lies between is lost, and counted. FLIP-135's semantics."""


class Overflow(str, Enum):
    """What a producer does when the consumer is ``max_bytes`` behind."""

    BLOCK = "block"
    """It waits, and fails by name when it has waited too long."""

    DROP = "drop"
    """It drops the oldest records, and counts them; where the budget forbids that, it waits."""


@dataclass(frozen=True)
class LossBudget:
    """How much may be lost: records, and the fraction of all records up to the checkpoint. `None`: without limit.

    Raises `JobDefinitionError` for what can be no budget.
    """

    max_lost_records: int | None = None
    max_lost_fraction: float | None = None

    def __post_init__(self) -> None:
        records, fraction = self.max_lost_records, self.max_lost_fraction
        if (records is not None and records < 0) or (fraction is not None and not 0 <= fraction <= 1):
            raise JobDefinitionError(
                "loss budget: expected max_lost_records of at least 0 and max_lost_fraction between 0 and 1, found "
                f"{records!r} and {fraction!r}",
                code="loss-budget-unfit",
            )

    @property
    def is_limited(self) -> bool:
        """Whether it limits the records or the fraction. Without a limit nothing is refused, only counted."""
        return self.max_lost_records is not None or self.max_lost_fraction is not None

    @property
    def allows_none(self) -> bool:
        """Whether not a single record may be lost."""
        return self.max_lost_records == 0 or self.max_lost_fraction == 0

    def excess(self, lost: int, records: int) -> str | None:
        """Why ``lost`` of ``records`` are too many, as one phrase; `None` where they are not."""
        if self.max_lost_records is not None and lost > self.max_lost_records:
            return f"{lost} lost records, max_lost_records is {self.max_lost_records}"
        if self.max_lost_fraction is not None and lost > self.max_lost_fraction * records:
            return f"{lost} of {records} records lost, max_lost_fraction is {self.max_lost_fraction:g}"
        return None


UNLIMITED = LossBudget()
