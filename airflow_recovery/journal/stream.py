"""Event streams: segments of framed events, written by a thread of its own, and how they are read back.

    <prefix>/<writer>/<segment, 8 digits>        put-if-absent, one writer each
    {"crc":<crc32 of the event's canonical JSON>,"event":{...},"seq":<number in this writer's stream>}\\n

A stream is for people: losing it changes no plan. So recording never waits and never raises; what could not be written
is counted and reported when the stream is closed.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_recovery.errors import AttemptLost, RecordInvalid, StoreError
from airflow_recovery.journal.codec import MAX_RECORD_BYTES, canonical_json, parse_json
from airflow_recovery.journal.events import JobEvent, event_from_json, event_to_json
from airflow_recovery.journal.write_once import write_once
from airflow_recovery.storage.names import encode
from airflow_recovery.storage.object_store import ObjectStore

log = logging.getLogger(__name__)

MAX_WAITING_EVENTS = 10_000
"""Events between `record` and the store. More are dropped and counted: memory stays bounded while a store is down."""


@dataclass(frozen=True)
class StreamClosed:
    """What became of the recorded events. ``failed`` says why events are missing, or is `None`."""

    written: int
    dropped: int
    failed: str | None


class EventSink(Protocol):
    """Takes events, whatever becomes of them."""

    def record(self, event: JobEvent) -> None:
        """Hand in one event. Never waits for the store and never raises."""
        ...

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Write what is still waiting, for at most ``timeout_s``, and say how it went."""
        ...


class NoEvents:
    """No stream: for callers that keep none, so that nobody tests for `None`."""

    def record(self, event: JobEvent) -> None:
        """Forget ``event``."""

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Nothing was written, nothing is missing."""
        return StreamClosed(0, 0, None)


class EventWriter:
    """Writes one stream ``<prefix>/<writer_id>/`` from a daemon thread that starts with the first event.

    A segment is written as soon as ``buffer_bytes`` wait, or ``flush_interval_s`` after the first event that waits
    (FLIP-383: ``write-buffer.size``, ``write-buffer.flush-interval``). Where that fails, the same segment is written
    again after the next interval, so the stream has no holes; meanwhile events wait, up to `MAX_WAITING_EVENTS`.
    Does not survive a fork, nor a kill: what waits then is lost.
    """

    def __init__(
        self,
        store: ObjectStore,
        prefix: str,
        writer_id: str,
        *,
        buffer_bytes: int = 1024 * 1024,
        flush_interval_s: float = 1.0,
        max_waiting_events: int = MAX_WAITING_EVENTS,
    ) -> None:
        self._store = store
        self._where = f"{prefix.rstrip('/')}/{encode(writer_id)}"
        self._buffer_bytes = buffer_bytes
        self._flush_interval_s = flush_interval_s
        self._max_waiting_events = max_waiting_events
        self._changed = threading.Condition()
        # All below is guarded by `_changed`.
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._first_at_s = 0.0
        self._segment: tuple[int, bytes] | None = None  # events and bytes of a segment whose outcome is not known yet
        self._segments = self._recorded = self._written = self._dropped = 0
        self._failed: str | None = None
        self._dead = False
        self._closing_at_s: float | None = None
        self._thread: threading.Thread | None = None

    def record(self, event: JobEvent) -> None:
        """Hand in one event. Never waits for the store and never raises; when too many wait, it is dropped."""
        try:
            body = event_to_json(event)
            crc = zlib.crc32(canonical_json(body).encode())
        except (TypeError, ValueError) as error:
            with self._changed:
                self._drop(1, f"an event can't be written as JSON: {error}")
            return
        with self._changed:
            if self._dead or self._closing_at_s is not None:
                self._drop(1, self._failed or "the stream was closed already")
            elif len(self._waiting) >= self._max_waiting_events:
                self._drop(1, self._failed or f"more than {self._max_waiting_events} events were waiting")
            else:
                self._append(crc, body)

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """Write what is still waiting, for at most ``timeout_s``, and say how it went. A second call says it again."""
        with self._changed:
            if self._closing_at_s is None:
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
        self._failed = self._failed or why

    def _append(self, crc: int, event: dict[str, Any]) -> None:
        self._recorded += 1
        # Numbered here, where it is certain to be in the stream: a dropped event leaves no hole.
        line = canonical_json({"seq": self._recorded, "crc": crc, "event": event}).encode() + b"\n"
        if not self._waiting:
            self._first_at_s = time.monotonic()
        self._waiting.append(line)
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
        lines: list[bytes] = []
        size = 0
        while self._waiting and (not lines or size < self._buffer_bytes):
            lines.append(self._waiting.popleft())
            size += len(lines[-1])
        self._waiting_bytes -= size
        self._first_at_s = time.monotonic()
        self._segment = (len(lines), b"".join(lines))

    def _write(self, number: int, segment: tuple[int, bytes]) -> bool:
        events, body = segment
        try:
            # One PUT: this thread does the repeating, so that `close` need not wait for a pause of write_once.
            write_once(
                self._store, f"{self._where}/{number:08d}", body, is_mine=lambda found: found == body, deadline_s=0
            )
        except (StoreError, AttemptLost) as error:
            with self._changed:
                # A segment of this writer that this writer did not write: two processes share an id. Never again.
                self._dead = isinstance(error, AttemptLost)
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
            self._written += events
            if not self._dropped:
                self._failed = None
        return True


def read_stream(store: ObjectStore, prefix: str) -> Iterator[JobEvent]:
    """The events of all streams below ``prefix``, writer by writer, each in the order in which it was recorded.

    A torn last record of a writer is normal and left out. Raises `RecordInvalid` for damage anywhere else and for a
    hole in the numbers; events before it have been yielded then. Unknown event types that are marked optional are
    skipped. Does not order events of different writers.
    """
    root = prefix.rstrip("/") + "/"
    writers: dict[str, list[str]] = {}
    for info in store.list(root):
        if info.size > MAX_RECORD_BYTES:
            raise RecordInvalid(
                f"{store.base_uri}/{info.key}: {info.size} bytes, more than the limit of {MAX_RECORD_BYTES}."
            )
        writers.setdefault(info.key.rpartition("/")[0], []).append(info.key)
    for keys in writers.values():
        yield from _read_writer(store, sorted(keys))


def _read_writer(store: ObjectStore, keys: list[str]) -> Iterator[JobEvent]:
    expected = 1
    for number, key in enumerate(keys, start=1):
        where = f"{store.base_uri}/{key}"
        if not key.endswith(f"/{number:08d}"):
            raise RecordInvalid(
                f"{where}: expected segment {number:08d}; a segment is missing. Events after the hole are not shown."
            )
        *lines, rest = store.get(key).body.split(b"\n")
        for line in lines:
            event = _read_record(line, expected, where)
            expected += 1
            if event is not None:
                yield event
        if number < len(keys) and (rest or not lines):
            raise RecordInvalid(f"{where}: cut in the middle of the stream, after record {expected - 1}.")


def _read_record(line: bytes, expected: int, where: str) -> JobEvent | None:
    where = f"{where}, record {expected}"
    record = parse_json(line, where=where)
    if not isinstance(record, dict) or record.keys() != {"seq", "crc", "event"}:
        raise RecordInvalid(f"{where}: expected seq, crc and event, found another document.")
    if record["seq"] != expected:
        raise RecordInvalid(f"{where}: expected number {expected}, found {record['seq']!r}; records are missing.")
    if zlib.crc32(canonical_json(record["event"]).encode()) != record["crc"]:
        raise RecordInvalid(f"{where}: the checksum does not match; the record is damaged.")
    return event_from_json(record["event"], where=where)
