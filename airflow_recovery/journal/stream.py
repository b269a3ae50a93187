"""The event store of one process: what it records, a thread writes as segments of one stream (FLIP-383).

    <base>/_streams/<dag id>/<run key>/<group id>/<writer>/<segment, 8 digits>      put-if-absent, one writer each

A stream is for people: losing it changes no plan. So recording never waits and never raises; what could not be written
is counted, and said in the stream where that is possible, and when it is closed. `airflow_recovery.journal.history`
reads it back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from airflow_recovery.errors import StoreError, WriteLost
from airflow_recovery.journal.events import EventsDropped, JobEvent, StreamEnded, event_text
from airflow_recovery.journal.frames import MAX_EVENT_BYTES, SegmentHeader, record_line
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.masking import Mask, masked
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.names import encode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.write_once import write_once

log = logging.getLogger(__name__)

MAX_WAITING_EVENTS = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024
"""What may wait between `record` and the store. More is dropped and counted: memory stays bounded while it is down."""

MAX_TEXT = MAX_EVENT_BYTES - 4096
"""The longest event, as JSON: its line holds also the writer and the number."""


@dataclass(frozen=True)
class StreamClosed:
    """How many recorded events were written and how many were not. ``failed``: why some are missing, or `None`."""

    written: int
    dropped: int
    failed: str | None


@dataclass(frozen=True)
class _Line:
    """``counts``: an event that was recorded, not one that speaks of the stream itself."""

    body: bytes
    counts: bool


@dataclass(frozen=True)
class _Segment:
    lines: int
    events: int
    body: bytes


class EventSink(Protocol):
    """Where a process records its events. It reports no error to the caller: losing events changes no plan."""

    def record(self, event: JobEvent) -> None:
        """Hand in one event. Never waits for the store and never raises."""
        ...

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Write what is still waiting, for at most ``timeout_s``, and say how it went."""
        ...


class NoEvents:
    """No stream: for callers that keep none, so that nobody tests for `None`."""

    def record(self, event: JobEvent) -> None:
        """Does nothing."""

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """An answer with no event written and none missing."""
        return StreamClosed(0, 0, None)


class EventWriter:
    """Writes one stream of the run ``identity`` from a daemon thread that starts with the first event.

    A segment is written as soon as ``buffer_bytes`` wait, or ``flush_interval_s`` after the first event that waits
    (FLIP-383: ``write-buffer.size``, ``write-buffer.flush-interval``). Where that fails, the same segment is written
    again after the next interval, so the stream has no holes; meanwhile events wait, up to ``max_waiting_events`` and
    ``max_waiting_bytes``. Where events were dropped all the same, an `EventsDropped` stands in their place, and the
    last record is a `StreamEnded`. ``mask`` takes secrets out of free text.

    Does not survive a fork, nor a kill: what waits then is lost, and the stream has no end.
    """

    def __init__(  # noqa: PLR0913 - limits, each with its default
        self,
        store: ObjectStore,
        identity: RunIdentity,
        writer_id: str,
        *,
        buffer_bytes: int = 1024 * 1024,
        flush_interval_s: float = 1.0,
        max_waiting_events: int = MAX_WAITING_EVENTS,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        mask: Mask = scrubbed,
        now: Callable[[], str] = lambda: datetime.now(timezone.utc).isoformat(),
    ) -> None:
        self._store = store
        self._identity = identity
        self._writer_id = writer_id
        self._where = JournalLayout(identity).streams + encode(writer_id)
        self._buffer_bytes = buffer_bytes
        self._flush_interval_s = flush_interval_s
        self._max_waiting_events = max_waiting_events
        self._max_waiting_bytes = max_waiting_bytes
        self._mask = mask
        self._now = now
        self._changed = threading.Condition()
        # All below is guarded by `_changed`.
        self._waiting: deque[_Line] = deque()
        self._waiting_bytes = 0
        self._first_at_s = 0.0
        self._segment: _Segment | None = None  # one whose outcome is not known yet
        self._segments = self._lines = self._lines_written = 0
        self._recorded = self._written = self._dropped = self._dropped_unsaid = 0
        self._failed: str | None = None
        self._dead = False
        self._closing_at_s: float | None = None
        self._thread: threading.Thread | None = None

    def record(self, event: JobEvent) -> None:
        """Hand in one event. Never waits for the store and never raises; when too many wait, it is dropped."""
        try:
            text = event_text(masked(event, self._mask))
        except Exception as error:
            with self._changed:
                self._drop(1, f"an event can't be written as JSON: {error!r}")
            return
        with self._changed:
            if self._dead or self._closing_at_s is not None:
                self._drop(1, self._failed or "the stream was closed already")
            elif len(text) > MAX_TEXT:
                self._drop(1, f"an event has {len(text)} bytes, the limit is {MAX_TEXT}")
            elif len(self._waiting) >= self._max_waiting_events:
                self._drop(1, self._failed or f"more than {self._max_waiting_events} events were waiting")
            elif self._waiting and self._waiting_bytes + len(text) > self._max_waiting_bytes:
                self._drop(1, self._failed or f"more than {self._max_waiting_bytes} bytes of events were waiting")
            else:
                self._say_what_was_dropped()
                self._recorded += 1
                self._append(text, counts=True)

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Write what is still waiting, for at most ``timeout_s``, and say how it went. It may be called again."""
        with self._changed:
            if self._closing_at_s is None:
                if not self._dead and (self._lines or self._dropped_unsaid):
                    self._say_what_was_dropped()
                    self._append(event_text(StreamEnded(occurred_at=self._now())), counts=False)
                self._closing_at_s = time.monotonic() + timeout_s
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s + 0.1)
        with self._changed:
            self._dead = True
            lost = self._recorded - self._written
            if lost:
                self._failed = self._failed or f"the store did not answer within {timeout_s} s"
                log.warning("%d events of stream %s are lost: %s", lost, self._uri, self._failed)
            return StreamClosed(self._written, lost + self._dropped, self._failed if lost or self._dropped else None)

    @property
    def _uri(self) -> str:
        return f"{self._store.base_uri}/{self._where}"

    def _drop(self, events: int, why: str) -> None:
        if self._dropped == 0:
            log.warning(
                "Events of stream %s are dropped: %s. Recovery is not affected; the history of this run has a gap.",
                self._uri,
                why,
            )
        self._dropped += events
        self._dropped_unsaid += events
        self._failed = self._failed or why

    def _say_what_was_dropped(self) -> None:
        if self._dropped_unsaid:
            try:
                why = self._mask(self._failed or "unknown")
            except Exception:
                why = "the reason can't be masked"
            dropped = EventsDropped(occurred_at=self._now(), count=self._dropped_unsaid, why=why)
            self._dropped_unsaid = 0
            self._append(event_text(dropped), counts=False)

    def _append(self, event: str, *, counts: bool) -> None:
        # Numbered here, where it is certain to be in the stream: a dropped event leaves no hole in the numbers.
        self._lines += 1
        line = record_line(self._writer_id, self._lines, event)
        if not self._waiting:
            self._first_at_s = time.monotonic()
        self._waiting.append(_Line(line, counts))
        self._waiting_bytes += len(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recovery-events", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    if self._is_done():
                        return
                    self._changed.wait(self._pause_s())
                if self._segment is None:
                    self._cut_segment()
                segment = self._segment
            if segment is not None and not self._write(self._segments + 1, segment):
                with self._changed:
                    if self._is_done():
                        return
                    self._changed.wait_for(self._is_done, self._flush_interval_s)

    def _is_due(self) -> bool:
        if self._segment is not None:
            return not self._is_done()
        if not self._waiting or self._dead:
            return False
        return (
            self._closing_at_s is not None
            or self._waiting_bytes >= self._buffer_bytes
            or time.monotonic() >= self._first_at_s + self._flush_interval_s
        )

    def _is_done(self) -> bool:
        if self._dead:
            return True
        if self._closing_at_s is None:
            return False
        return time.monotonic() >= self._closing_at_s or (self._segment is None and not self._waiting)

    def _pause_s(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, self._first_at_s + self._flush_interval_s - time.monotonic())

    def _cut_segment(self) -> None:
        lines: list[_Line] = []
        size = 0
        while self._waiting and (not lines or size < self._buffer_bytes):
            lines.append(self._waiting.popleft())
            size += len(lines[-1].body)
        self._waiting_bytes -= size
        self._first_at_s = time.monotonic()
        header = SegmentHeader(self._identity, self._writer_id, self._segments + 1, self._lines_written + 1)
        self._segment = _Segment(
            lines=len(lines),
            events=sum(line.counts for line in lines),
            body=header.line() + b"".join(line.body for line in lines),
        )

    def _write(self, number: int, segment: _Segment) -> bool:
        body = segment.body
        try:
            # One PUT: this thread does the repeating, so that `close` need not wait for a pause of write_once.
            write_once(self._store, f"{self._where}/{number:08d}", body, is_mine=body.__eq__, deadline_s=0)
        except StoreError as error:
            with self._changed:
                # A segment of this writer that this writer did not write: two processes share an id. Never again.
                self._dead = isinstance(error, WriteLost)
                if self._failed is None:
                    log.warning(
                        "Stream %s can't be written: %s. Recovery is not affected; events wait and are written when "
                        "the store answers, up to %d of them.",
                        self._uri,
                        error,
                        self._max_waiting_events,
                    )
                self._failed = str(error)
            return False
        except Exception as error:
            log.exception("Stream %s has stopped; the history of this run ends here.", self._uri)
            with self._changed:
                self._dead, self._failed = True, repr(error)
            return False
        with self._changed:
            self._segment = None
            self._segments += 1
            self._lines_written += segment.lines
            self._written += segment.events
            if not self._dropped:
                self._failed = None
        return True
