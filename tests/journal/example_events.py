"""One event of each type, with every record in it full, and what most tests of streams need."""

from __future__ import annotations

from typing import Any

from test_codec import EXAMPLES as RECORDS

from airflow_recovery.journal.events import (
    ConsumerKept,
    Degraded,
    EventsDropped,
    FailoverPlanned,
    JobEvent,
    JobPlanned,
    JobVertexInitialized,
    RecordWritten,
    RegionKept,
    RegionSkipped,
    SplitsCommitted,
    StreamEnded,
    WriteInDoubt,
)
from airflow_recovery.journal.history import Gap, read_stream
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.journal.stream import EventWriter, StreamClosed
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store import ObjectStore

EXAMPLES: dict[str, Any] = dict(RECORDS)
AT = "2026-01-01T00:00:00+00:00"
FOR_EVER = 3600.0
IDENTITY = RunIdentity("dag", "date-2026-01-01T000000Z", "flights")
STREAMS = JournalLayout(IDENTITY).streams

COMMIT_EVENTS: list[JobEvent] = [
    RecordWritten(occurred_at=AT, record=EXAMPLES["committed"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["committer"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["confirmed"]),
]
"""Not in the first golden stream."""

KEPT_EVENTS: list[JobEvent] = [RecordWritten(occurred_at=AT, record=EXAMPLES["kept"])]
"""In no golden stream that was written before there were any."""

DECLARED_EVENTS: list[JobEvent] = [RecordWritten(occurred_at=AT, record=EXAMPLES["declared"])]
"""Likewise."""

SPLIT_EVENTS: list[JobEvent] = [
    SplitsCommitted(occurred_at=AT, region="raw", attempt=2, number=1, splits=2, lost=False)
]
"""In no golden stream that was written before there were any."""

HOLD_EVENTS: list[JobEvent] = [RecordWritten(occurred_at=AT, record=EXAMPLES["hold"])]
"""Neither are these."""

WITHDRAWAL_EVENTS: list[JobEvent] = [RecordWritten(occurred_at=AT, record=EXAMPLES["withdrawn"])]
"""Nor these."""

EXAMPLE_EVENTS: list[JobEvent] = [
    JobPlanned(occurred_at=AT, job="jobs:flights", plan_hash="0123abcd"),
    RecordWritten(occurred_at=AT, record=EXAMPLES["claim"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["outcome"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["outcome-counted"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["outcome-labelled"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["reset"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["lost"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["released"]),
    RecordWritten(occurred_at=AT, record=EXAMPLES["publish"]),
    RecordWritten(occurred_at=AT, number=2, record=EXAMPLES["closed"]),
    WriteInDoubt(occurred_at=AT, key="t/b/00000002.outcome", why="no answer"),
    EventsDropped(occurred_at=AT, count=7, why="the store was away"),
    JobVertexInitialized(
        occurred_at=AT, region="m", parallelism=2, keys=("2013-02", "ü"), appeared=("ü",), vanished=("2013-01",)
    ),
    RegionKept(occurred_at=AT, region="b", attempt=2, why="stands", files_checked=4, seconds_saved=None),
    ConsumerKept(occurred_at=AT, region="b", producer="a", read=1, now=2, by="verify", detail=""),
    FailoverPlanned(occurred_at=AT, region="b", lost=(InputRef("a", 1),), plan=(("a", "lost"), ("b", "reads a"))),
    RegionSkipped(occurred_at=AT, region="b", why="branch é"),
    Degraded(occurred_at=AT, what="no stream", consequence="no history"),
    *COMMIT_EVENTS,
    *SPLIT_EVENTS,
    *HOLD_EVENTS,
    *KEPT_EVENTS,
    *WITHDRAWAL_EVENTS,
    *DECLARED_EVENTS,
    StreamEnded(occurred_at=AT),
]


def skipped(number: int) -> RegionSkipped:
    return RegionSkipped(occurred_at=AT, region=f"r{number}", why="x")


def write(store: ObjectStore, events: list[JobEvent], writer_id: str = "w", **options: object) -> StreamClosed:
    """One process's events, written and ended."""
    writer = EventWriter(store, IDENTITY, writer_id, flush_interval_s=FOR_EVER, now=lambda: AT, **options)  # type: ignore[arg-type]
    for event in events:
        writer.record(event)
    return writer.close()


def read(store: ObjectStore, gaps: list[Gap] | None = None) -> list[JobEvent]:
    """The history, without what streams say of themselves. Strict, unless ``gaps`` is given."""
    found = (each.event for each in read_stream(store, IDENTITY, gaps=gaps))
    return [event for event in found if not isinstance(event, StreamEnded)]
