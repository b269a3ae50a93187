"""Progress of long Spark stages in the task log: one line on change, at most every ten seconds.

Classic sessions are polled through the status tracker, Connect sessions call a handler: the one small piece of the
runtime that differs between the two.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 1.0


@dataclass(frozen=True)
class TaskCounts:
    """Tasks of the Spark stages that are active now: not a total of the vertex. ``failed`` is unknown over Connect."""

    done: int
    total: int
    running: int
    failed: int | None = None


class Progress:
    """Logs how far an attempt is. ``vertex`` is the one being called or written, for the failure report.

    ``tell`` is called with each text that `say` logs.
    """

    def __init__(
        self,
        log: logging.Logger,
        attempt: int,
        *,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.vertex: str | None = None
        self.tell: Callable[[str], object] = lambda text: None
        self._log = log
        self._attempt = attempt
        self._interval_s = interval_s
        self._clock = clock
        self._last: TaskCounts | None = None
        self._said_at: float | None = None

    def report(self, counts: TaskCounts) -> None:
        """Log ``counts`` if they changed and the last line is old enough; the first waits one interval too."""
        now = self._clock()
        if self._said_at is None:
            self._said_at = now
        if counts == self._last or counts.total == 0 or now - self._said_at < self._interval_s:
            return
        self._last, self._said_at = counts, now
        failed = "" if counts.failed is None else f", {counts.failed} failed"
        self._log.info(
            "%s attempt %d: %d/%d tasks, %d running%s",
            self.vertex,
            self._attempt,
            counts.done,
            counts.total,
            counts.running,
            failed,
        )

    def say(self, text: str) -> None:
        """Log how far the attempt is, in the words of its mode."""
        self._log.info("Attempt %d: %s.", self._attempt, text)
        self.tell(text)

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Report the Spark stages of ``spark`` that run meanwhile."""
        self._last, self._said_at = None, self._clock()
        with _watching_remote(spark, self.report) if is_remote(spark) else _watching_classic(spark, self.report):
            yield


def is_remote(spark: SparkSession) -> bool:
    """True for a Spark Connect session. Asks the class, since importing Connect's needs gRPC."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def _watching_classic(spark: SparkSession, report: Callable[[TaskCounts], None]) -> Iterator[None]:
    tracker = spark.sparkContext.statusTracker()
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(POLL_S):
            try:
                stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
            except Exception:  # the JVM is gone or going: the main thread says so
                return
            report(classic_counts(stage for stage in stages if stage is not None))

    thread = threading.Thread(target=poll, name="airflow-recovery-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=5)


@contextmanager
def _watching_remote(spark: SparkSession, report: Callable[[TaskCounts], None]) -> Iterator[None]:
    def handler(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        if stages is not None and not done:  # the last call is no total (measured: 32 of 40)
            report(remote_counts(stages, inflight_tasks))

    spark.registerProgressHandler(handler)  # type: ignore[arg-type]  # an ABC, but any callable will do
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)  # type: ignore[arg-type]


def classic_counts(stages: Iterable[Any]) -> TaskCounts:
    """The counts of a classic session: sums over its active stages' ``SparkStageInfo`` values."""
    active = list(stages)
    return TaskCounts(
        done=sum(stage.numCompletedTasks for stage in active),
        total=sum(stage.numTasks for stage in active),
        running=sum(stage.numActiveTasks for stage in active),
        failed=sum(stage.numFailedTasks for stage in active),
    )


def remote_counts(stages: Iterable[Any], running: int) -> TaskCounts:
    """The counts of a Connect session: sums over ``StageInfo`` values. ``running`` is the number of running tasks."""
    active = list(stages)
    return TaskCounts(
        done=sum(stage.num_completed_tasks for stage in active),
        total=sum(stage.num_tasks for stage in active),
        running=running,
    )
