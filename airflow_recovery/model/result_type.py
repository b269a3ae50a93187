"""Result types (FLIP-1, `ResultPartitionType` in Flink): one value answers three questions.

1. When can a consumer run? Only where it *must* run together with its producer, they are one region.
2. Does a live Spark application keep it, and no store?
3. Does it outlive the run?
"""

from __future__ import annotations

from enum import Enum


class Consume(str, Enum):
    """When a consumer can run, as seen from its producer."""

    AFTER_FINISH = "after the producer has finished"
    MAY_RUN_TOGETHER = "may run together"
    MUST_RUN_TOGETHER = "must run together"


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
        return _CONSUME[self]

    @property
    def must_run_together(self) -> bool:
        """Producer and consumer are one unit of restart: the one thing that glues a region."""
        return self.consume is Consume.MUST_RUN_TOGETHER

    @property
    def is_cached(self) -> bool:
        """A live Spark application keeps it, and no store: it is lost with that application."""
        return self in (ResultType.CACHED, ResultType.CACHED_MEMORY_ONLY)

    @property
    def persistent(self) -> bool:
        """It outlives the run, and goes only on request."""
        return self is ResultType.BLOCKING_PERSISTENT


_CONSUME = {
    ResultType.PIPELINED: Consume.MUST_RUN_TOGETHER,
    ResultType.PIPELINED_BOUNDED: Consume.MUST_RUN_TOGETHER,
    ResultType.PIPELINED_APPROXIMATE: Consume.MAY_RUN_TOGETHER,
    ResultType.BLOCKING: Consume.AFTER_FINISH,
    ResultType.BLOCKING_PERSISTENT: Consume.AFTER_FINISH,
    ResultType.HYBRID_FULL: Consume.MAY_RUN_TOGETHER,
    ResultType.HYBRID_SELECTIVE: Consume.MAY_RUN_TOGETHER,
    ResultType.CACHED: Consume.AFTER_FINISH,
    ResultType.CACHED_MEMORY_ONLY: Consume.AFTER_FINISH,
}

PIPELINED = ResultType.PIPELINED
PIPELINED_APPROXIMATE = ResultType.PIPELINED_APPROXIMATE
BLOCKING = ResultType.BLOCKING
BLOCKING_PERSISTENT = ResultType.BLOCKING_PERSISTENT
CACHED = ResultType.CACHED
CACHED_MEMORY_ONLY = ResultType.CACHED_MEMORY_ONLY
