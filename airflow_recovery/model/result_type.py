"""Result types: one value answers three questions (FLIP-1, `ResultPartitionType` in Flink).

1. Does it glue a region? Only where producer and consumer *must* run together.
2. Can it be read again by a later attempt of a consumer?
3. Who lets it go, and does it outlive the run?
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Consume(str, Enum):
    """When a consumer can run, as seen from its producer."""

    AFTER_FINISH = "after the producer has finished"
    MAY_RUN_TOGETHER = "may run together"
    MUST_RUN_TOGETHER = "must run together"


class ReleasedBy(str, Enum):
    """Who deletes a result's data (Flink: ``ReleaseBy``)."""

    SCHEDULER = "scheduler"
    """Recovery does, by the release rule (`airflow_recovery.results.release`) or by an explicit request."""

    UPSTREAM = "upstream"
    """Its producer's application does, when it no longer needs it."""


class ResultType(str, Enum):
    """The type of an intermediate result. Only the questions decide, never the names.

    The first seven are Flink's; of these a job can be declared with those that `airflow_recovery.job` accepts. The
    others are there so that Flink's decision tables hold.
    """

    PIPELINED = "PIPELINED"
    """A lazy DataFrame inside one Spark application: producer and consumers form one region."""

    PIPELINED_BOUNDED = "PIPELINED_BOUNDED"
    """Pipelined with a bounded buffer."""

    PIPELINED_APPROXIMATE = "PIPELINED_APPROXIMATE"
    """A channel between two applications that run at the same time; it can be connected again, at a loss (FLIP-135)."""

    BLOCKING = "BLOCKING"
    """Written, registered in the journal and read again: recovery never goes back past it while it is registered."""

    BLOCKING_PERSISTENT = "BLOCKING_PERSISTENT"
    """Blocking, and outlives the run: shared between runs, and let go only on request."""

    HYBRID_FULL = "HYBRID_FULL"
    """Can be read while it is made, and again afterwards."""

    HYBRID_SELECTIVE = "HYBRID_SELECTIVE"
    """Can be read while it is made, and once: what was read is not kept."""

    CACHED = "CACHED"
    """Kept by a live Spark application, on its disks if need be: a barrier while that application lives (FLIP-1)."""

    CACHED_MEMORY_ONLY = "CACHED_MEMORY_ONLY"
    """Kept by a live Spark application in memory alone: eviction is a loss, too."""

    @property
    def consume(self) -> Consume:
        """When a consumer can run, as seen from the producer."""
        return _ANSWERS[self].consume

    @property
    def must_run_together(self) -> bool:
        """Producer and consumer are one unit of restart: the one thing that glues a region."""
        return _ANSWERS[self].consume is Consume.MUST_RUN_TOGETHER

    @property
    def re_consumable(self) -> bool:
        """A later attempt of a consumer can read the very same rows of an earlier attempt of the producer."""
        return _ANSWERS[self].re_consumable

    @property
    def is_cached(self) -> bool:
        """A live Spark application keeps it, and no store: it is lost with that application."""
        return self in (ResultType.CACHED, ResultType.CACHED_MEMORY_ONLY)

    @property
    def bounded(self) -> bool:
        """The buffer between producer and consumer has a bound, so that a slow consumer holds its producer up."""
        return _ANSWERS[self].bounded

    @property
    def persistent(self) -> bool:
        """It outlives the run, and goes only on request."""
        return _ANSWERS[self].persistent

    @property
    def released_by(self) -> ReleasedBy:
        """Who deletes its data."""
        return _ANSWERS[self].released_by


@dataclass(frozen=True)
class _Answers:
    re_consumable: bool
    bounded: bool
    persistent: bool
    consume: Consume
    released_by: ReleasedBy


_ANSWERS = {
    #                                              again  bounded persistent
    ResultType.PIPELINED: _Answers(                False, False, False, Consume.MUST_RUN_TOGETHER, ReleasedBy.UPSTREAM),
    ResultType.PIPELINED_BOUNDED: _Answers(        False, True,  False, Consume.MUST_RUN_TOGETHER, ReleasedBy.UPSTREAM),
    ResultType.PIPELINED_APPROXIMATE: _Answers(    False, True,  False, Consume.MAY_RUN_TOGETHER, ReleasedBy.UPSTREAM),
    ResultType.BLOCKING: _Answers(                 True,  False, False, Consume.AFTER_FINISH, ReleasedBy.SCHEDULER),
    ResultType.BLOCKING_PERSISTENT: _Answers(      True,  False, True,  Consume.AFTER_FINISH, ReleasedBy.SCHEDULER),
    ResultType.HYBRID_FULL: _Answers(              True,  False, False, Consume.MAY_RUN_TOGETHER, ReleasedBy.SCHEDULER),
    ResultType.HYBRID_SELECTIVE: _Answers(         False, False, False, Consume.MAY_RUN_TOGETHER, ReleasedBy.SCHEDULER),
    ResultType.CACHED: _Answers(                   True,  False, False, Consume.AFTER_FINISH, ReleasedBy.SCHEDULER),
    ResultType.CACHED_MEMORY_ONLY: _Answers(       True,  False, False, Consume.AFTER_FINISH, ReleasedBy.SCHEDULER),
}  # fmt: skip

PIPELINED = ResultType.PIPELINED
PIPELINED_APPROXIMATE = ResultType.PIPELINED_APPROXIMATE
BLOCKING = ResultType.BLOCKING
BLOCKING_PERSISTENT = ResultType.BLOCKING_PERSISTENT
CACHED = ResultType.CACHED
CACHED_MEMORY_ONLY = ResultType.CACHED_MEMORY_ONLY
