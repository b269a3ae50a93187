"""The event streams of a simulation, by the real writer: what was recorded, and what of it can be read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from airflow_recovery.journal.events import EventsDropped, JobEvent, StreamEnded
from airflow_recovery.journal.history import Gap, GapKind, read_stream
from airflow_recovery.journal.stream import EventWriter, StreamClosed
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.object_store import ObjectStore

NORMAL = frozenset({GapKind.NOT_ENDED, GapKind.DROPPED, GapKind.IN_DOUBT})
"""What a process may leave that was killed, or whose store was away."""

OF_THE_STREAM = (StreamEnded, EventsDropped)


@dataclass
class EventFile:
    """That of one try. ``closed``: how it ended, where its process came to that."""

    identity: RunIdentity
    name: str
    writer: EventWriter
    recorded: list[JobEvent] = field(default_factory=list)
    closed: StreamClosed | None = None

    def record(self, event: JobEvent) -> None:
        """As `EventWriter.record`."""
        self.recorded.append(event)
        self.writer.record(event)

    def close(self, timeout_s: float = 10.0) -> StreamClosed:
        """As `EventWriter.close`."""
        self.closed = self.writer.close(timeout_s)
        return self.closed


class EventFiles:
    """All of one simulation."""

    def __init__(self) -> None:
        self._files: list[EventFile] = []

    def begin(self, store: ObjectStore, identity: RunIdentity, now: Callable[[], str]) -> EventFile:
        """A stream of its own for one try."""
        name = f"{len(self._files) + 1:08d}"
        self._files.append(EventFile(identity, name, EventWriter(store, identity, name, mask=str, now=now)))
        return self._files[-1]

    def why_wrong(self, store: ObjectStore) -> str | None:
        """Why a stream is not what was recorded: all of it, or its beginning where the process has not closed it."""
        for identity in {file.identity for file in self._files}:
            gaps: list[Gap] = []
            read: dict[str, list[JobEvent]] = {}
            for recorded in read_stream(store, identity, gaps=gaps):
                read.setdefault(recorded.writer, []).append(recorded.event)
            bad = [gap for gap in gaps if gap.kind not in NORMAL]
            if bad:
                return f"I11: the stream of {bad[0].writer} is {bad[0].kind.value}: {bad[0].text}"
            for file in self._files:
                if file.identity == identity:
                    own = [event for event in read.get(file.name, []) if not isinstance(event, OF_THE_STREAM)]
                    is_whole = file.closed is not None and file.closed.dropped == 0
                    if own != file.recorded[: None if is_whole else len(own)]:
                        return f"I11: the stream of try {file.name} has {len(own)} of {len(file.recorded)} events"
        return None
