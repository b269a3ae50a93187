"""Streams of format 1 are read for ever. The files are never written again; a new format adds a folder beside them.

To add to them (a new event type, a new field): a further segment, made with `segments`.
"""

from __future__ import annotations

from pathlib import Path

from example_events import AT, EXAMPLE_EVENTS, FOR_EVER, IDENTITY, STREAMS, read

from airflow_recovery.journal.events import EventsDropped, StreamEnded
from airflow_recovery.journal.history import Gap, GapKind, read_stream
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.storage.local import LocalStore

GOLDEN = Path(__file__).parents[1] / "golden" / "streams-v1"
WRITER = "0a1b2c3d"


def segments(store: LocalStore) -> dict[str, bytes]:
    """Every event type, in segments of about 2 kB, as this version writes them."""
    writer = EventWriter(store, IDENTITY, WRITER, buffer_bytes=2000, flush_interval_s=FOR_EVER, now=lambda: AT)
    with writer._changed:  # nothing is written before all of it waits: so it is always cut in the same places
        for each in EXAMPLE_EVENTS[:-1]:
            writer.record(each)
    assert writer.close().failed is None
    return {each.key.rpartition("/")[2]: store.get(each.key).body for each in store.list()}


def golden(store: LocalStore) -> None:
    for each in sorted(GOLDEN.iterdir()):
        store.put(f"{STREAMS}{WRITER}/{each.name}", each.read_bytes())


def test_fault_39_streams_of_format_1_are_read_for_ever(local_store: LocalStore) -> None:
    golden(local_store)
    gaps: list[Gap] = []
    assert read(local_store) == EXAMPLE_EVENTS[:-1]
    assert isinstance([each.event for each in read_stream(local_store, IDENTITY, gaps=gaps)][-1], StreamEnded)
    # What the example of these two says of itself.
    assert [each.kind for each in gaps] == [GapKind.IN_DOUBT, GapKind.DROPPED]
    assert any(isinstance(each, EventsDropped) for each in EXAMPLE_EVENTS)


def test_this_version_writes_the_golden_bytes(local_store: LocalStore) -> None:
    assert segments(local_store) == {each.name: each.read_bytes() for each in GOLDEN.iterdir()}
