"""Reads the event streams of a run back: what happened, and where the history has a hole.

Each stream is read up to its first damage and never beyond: an event behind a hole could contradict one inside it. The
streams of other writers are good all the same, since whatever an event says, it says of an attempt by its number.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from airflow_recovery.errors import StreamDamaged
from airflow_recovery.journal.events import EventsDropped, JobEvent, StreamEnded, WriteInDoubt, event_from_json
from airflow_recovery.journal.frames import MAX_SEGMENT_BYTES, SegmentHeader, TornEnd, read_segment
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.names import decode
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore, get_many

log = logging.getLogger(__name__)

CONNECTIONS = 64
BATCH_BYTES = 32 * 1024 * 1024
"""How many bytes of the streams are held at a time. A larger segment is held alone."""


class GapKind(str, Enum):
    """Why events of a writer are missing, or may be."""

    TORN = "torn"
    """The last record is cut: its process was stopped while it wrote. Normal."""

    NOT_ENDED = "not ended"
    """The process is at work, or was killed with events that it had not written yet. Normal."""

    DROPPED = "dropped"
    """The store was away for too long, or an event was too large: the writer says how many are missing."""

    IN_DOUBT = "in doubt"
    """A write got no answer, so nobody knows whether it has happened."""

    DAMAGED = "damaged"
    """The rest of this stream can't be trusted: a wrong checksum or length, or a missing segment."""

    PURGED = "purged"
    """The stream's beginning was deleted with an earlier life of the run; what came late does not count (fault 43)."""


@dataclass(frozen=True)
class Gap:
    """Events of ``writer`` that are missing, or may be."""

    writer: str
    kind: GapKind
    text: str


@dataclass(frozen=True)
class Recorded:
    """An event, its writer, and its number in that writer's stream: together they name it."""

    writer: str
    number: int
    event: JobEvent


def read_stream(store: ObjectStore, identity: RunIdentity, *, gaps: list[Gap] | None = None) -> Iterator[Recorded]:
    """The events of all streams of a run, writer by writer, each in the order in which it was recorded.

    Events of different writers are in no order: an attempt and its number say what they are about. Unknown event types
    that are marked optional are skipped. Where ``gaps`` is given, what is missing is appended to it, and a damaged
    stream ends before its damage; else damage raises `StreamDamaged`, after the events before it were yielded.

    Raises `RecordInvalid` for what this reader must not interpret: streams of another journal, or of a newer version.
    """
    layout = JournalLayout(identity)
    streams: dict[str, _Stream] = {}
    for batch in _batches(store, layout.streams):
        readable = [info.key for info in batch if 0 < info.size <= MAX_SEGMENT_BYTES]
        bodies = get_many(store, readable, connections=CONNECTIONS)
        for info in batch:
            folder = info.key.rpartition("/")[0]
            stream = streams.setdefault(folder, _Stream(store, layout, folder.rpartition("/")[2], gaps))
            body = bodies.get(info.key)
            yield from stream.read(info, body.body if body is not None else None)
    for stream in streams.values():
        stream.end()


def _batches(store: ObjectStore, prefix: str) -> Iterator[list[ObjectInfo]]:
    batch: list[ObjectInfo] = []
    size = 0
    for info in store.list(prefix):
        if batch and size + info.size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(info)
        size += info.size if info.size <= MAX_SEGMENT_BYTES else 0
    if batch:
        yield batch


class _Purged(StreamDamaged):
    """The stream has no beginning, since that was deleted."""


class _Stream:
    """One writer's stream while it is read."""

    def __init__(self, store: ObjectStore, layout: JournalLayout, folder: str, gaps: list[Gap] | None) -> None:
        self._store = store
        self._layout = layout
        self._writer = _decoded(folder)
        self._gaps = gaps
        self._segments = self._records = 0
        self._torn: TornEnd | None = None
        self._has_ended = self._is_over = False

    def read(self, info: ObjectInfo, body: bytes | None) -> Iterator[Recorded]:
        if self._is_over:
            return
        where = f"{self._store.base_uri}/{info.key}"
        try:
            self._check_place(info, where)
            if body is None:
                raise StreamDamaged(
                    f"{where}: {info.size} bytes; a segment has at least 1 and at most {MAX_SEGMENT_BYTES}."
                )
            self._segments += 1
            header = SegmentHeader(self._layout.identity, self._writer, self._segments, self._records + 1)
            for number, document in read_segment(body, header, where=where):
                event = event_from_json(document, where=f"{where}, record {number}")
                self._records = number
                if event is not None:
                    self._look_at(event)
                    yield Recorded(self._writer, number, event)
        except TornEnd as error:
            self._torn = error
        except StreamDamaged as error:
            self._give_up(error)

    def end(self) -> None:
        if self._is_over:
            return
        if self._torn is not None:
            self._gap(GapKind.TORN, f"{self._torn} The last record of this stream is left out.")
        elif not self._has_ended:
            self._gap(GapKind.NOT_ENDED, "its process is at work, or was killed and its last events are missing")

    def _check_place(self, info: ObjectInfo, where: str) -> None:
        """Raise `StreamDamaged` where this is not the segment that follows the last one."""
        if self._torn is not None:
            raise StreamDamaged(f"{self._torn} There is a segment after it.")
        if info.key.endswith(f"/{self._segments + 1:08d}"):
            return
        if self._segments == 0 and self._was_purged():
            raise _Purged(f"{where}: written after this run was purged, by a process from before.")
        raise StreamDamaged(
            f"{where}: expected segment {self._segments + 1:08d}; a segment is missing. Events after the hole are not "
            "shown.",
            code="segment-missing",
        )

    def _was_purged(self) -> bool:
        return any(True for _ in self._store.list(self._layout.closed))

    def _look_at(self, event: JobEvent) -> None:
        self._has_ended = isinstance(event, StreamEnded)
        if isinstance(event, EventsDropped):
            self._gap(GapKind.DROPPED, f"{event.count} events: {event.why}")
        elif isinstance(event, WriteInDoubt):
            self._gap(GapKind.IN_DOUBT, f"{event.key}: {event.why}")

    def _give_up(self, error: StreamDamaged) -> None:
        self._is_over = True
        if isinstance(error, _Purged):
            self._gap(GapKind.PURGED, str(error))
            return
        if self._gaps is None:
            raise error
        log.warning("The history of this run has a hole. Recovery is not affected. %s", error)
        self._gap(GapKind.DAMAGED, str(error))

    def _gap(self, kind: GapKind, text: str) -> None:
        if self._gaps is not None:
            self._gaps.append(Gap(self._writer, kind, text))


def _decoded(folder: str) -> str:
    try:
        return decode(folder)
    except ValueError:
        return folder  # no writer of ours: its segments will be refused
