"""Metrics of recovery, through Airflow's own ``Stats`` (StatsD or OpenTelemetry, as ``[metrics]`` says): one family.

Counters, each with the tags of the task instance (``dag_id``, ``task_id``):

    recovery.attempts                 attempts begun; recovery.attempts.rerun: those that were not the region's first
    recovery.attempts.finished        ended with a result
    recovery.attempts.failed          ended without one; tag ``cause``
    recovery.regions.kept             tries that had to run nothing
    recovery.regions.skipped          tries of a region that was skipped
    recovery.spark_seconds_saved      what the kept attempts had cost in Spark, in whole seconds
    recovery.results.lost             reports that a result is gone
    recovery.results.released         results let go by this task
    recovery.ledger.splits            splits that a new result does without, within its loss budget
    recovery.sinks.committed          commits to a sink
    recovery.publishes                publishes
    recovery.history.dropped          events that could not be written; recovery does not need them
    recovery.journal.in_doubt         writes that got no answer for too long

Timers:

    recovery.attempt.spark            Spark's time of an attempt
    recovery.journal.<request>        requests to the journal: put_if_absent, put, get, list, delete

An attempt is counted by the process that made it, or that ended it, so that a kept result is not counted again. Tags of
StatsD's plain protocol are dropped by Airflow, as those of its own metrics are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from airflow_recovery.journal.events import JobEvent, RegionKept, RegionSkipped, WriteInDoubt
from airflow_recovery.journal.stream import EventSink, StreamClosed
from airflow_recovery.model.records import AttemptState, Claim, Committed, Lost, Outcome, Publish, Released
from airflow_recovery.story.mode import story_of

FAMILY = "recovery"
log = logging.getLogger(__name__)

COUNTED: dict[type[Any], str] = {
    RegionSkipped: "regions.skipped",
    Released: "results.released",
    Lost: "results.lost",
    Publish: "publishes",
    Committed: "sinks.committed",
    WriteInDoubt: "journal.in_doubt",
}
"""What is only counted, by the class of what an event tells: a record, or the event itself."""


class RecoveryMetrics:
    """Sends the metrics of one try. Never raises: a metric that can't be sent is said once, and given up."""

    def __init__(self, stats: Any, tags: Mapping[str, str]) -> None:
        self._stats = stats
        self._tags = dict(tags)
        self._works = True

    def count(self, name: str, by: int = 1, **tags: str) -> None:
        """Add ``by`` to the counter ``recovery.<name>``, with ``tags`` besides the task instance's."""
        self._send(lambda: self._stats.incr(f"{FAMILY}.{name}", by, tags={**self._tags, **tags}))

    def timing(self, name: str, seconds: float) -> None:
        """Send one value of the timer ``recovery.<name>``."""
        self._send(lambda: self._stats.timing(f"{FAMILY}.{name}", timedelta(seconds=seconds), tags=dict(self._tags)))

    def request(self, request: str, seconds: float) -> None:
        """Time one request to the journal: ``put_if_absent``, ``put``, ``get``, ``list`` or ``delete``."""
        self.timing(f"journal.{request}", seconds)

    def _send(self, send: Callable[[], None]) -> None:
        if not self._works:
            return
        try:
            send()
        except Exception as error:
            self._works = False
            log.warning("This try sends no more metrics of recovery, which is not affected: %s", error)


class MeteredEvents:
    """An event sink that counts what it passes on. ``writer`` is this process in the journal."""

    def __init__(self, inner: EventSink, metrics: RecoveryMetrics, writer: str) -> None:
        self._inner = inner
        self._metrics = metrics
        self._writer = writer

    def record(self, event: JobEvent) -> None:
        """Count ``event``, where a metric is made of it, and pass it on to the inner sink."""
        self._count(event)
        self._inner.record(event)

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Close the inner sink, and say what could not be written."""
        return self._inner.close(timeout_s)

    def _count(self, event: JobEvent) -> None:
        subject = event.subject
        if isinstance(subject, Claim):
            self._claimed(subject)
        elif isinstance(subject, Outcome):
            self._ended(subject)
        elif isinstance(subject, RegionKept):
            self._metrics.count("regions.kept")
            if subject.seconds_saved:
                self._metrics.count("spark_seconds_saved", math.ceil(subject.seconds_saved))
        elif type(subject) in COUNTED:
            self._metrics.count(COUNTED[type(subject)])

    def _claimed(self, claim: Claim) -> None:
        if claim.writer != self._writer:
            return
        self._metrics.count("attempts")
        if claim.attempt > 1:
            self._metrics.count("attempts.rerun")

    def _ended(self, outcome: Outcome) -> None:
        if outcome.writer != self._writer:
            return
        if outcome.state is not AttemptState.FINISHED:
            self._metrics.count("attempts.failed", cause=outcome.cause.value if outcome.cause is not None else "none")
            return
        self._metrics.count("attempts.finished")
        for counter, count in story_of(outcome).counted(outcome).items():
            self._metrics.count(counter, count)
        if outcome.spark_seconds is not None:
            self._metrics.timing("attempt.spark", outcome.spark_seconds)


def metrics_of(context: Mapping[str, Any]) -> RecoveryMetrics:
    """The metrics of the task instance of ``context``, by Airflow's ``Stats`` and with its tags."""
    from airflow_recovery.airflow_compat import stats

    return RecoveryMetrics(stats, getattr(context["ti"], "stats_tags", {}))
