"""Streams of format 1 are read for ever. The files are never written again; a new format adds a folder beside them.

To add to them (a new event type, a new field): a further folder, made with `segments`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from example_events import (
    AT,
    COMMIT_EVENTS,
    DECLARED_EVENTS,
    EXAMPLE_EVENTS,
    FOR_EVER,
    HOLD_EVENTS,
    IDENTITY,
    KEPT_EVENTS,
    SPLIT_EVENTS,
    STREAMS,
    WITHDRAWAL_EVENTS,
    read,
)

from airflow_recovery.journal.events import EventsDropped, JobEvent, StreamEnded
from airflow_recovery.journal.history import Gap, GapKind, read_stream
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.store.local import LocalStore

GOLDEN = Path(__file__).parents[1] / "golden"
BESIDE = [*COMMIT_EVENTS, *DECLARED_EVENTS, *HOLD_EVENTS, *KEPT_EVENTS, *SPLIT_EVENTS, *WITHDRAWAL_EVENTS]
FOLDERS: dict[str, list[JobEvent]] = {
    "streams-v1": [example_event for example_event in EXAMPLE_EVENTS[:-1] if example_event not in BESIDE],
    "streams-v1-commits": COMMIT_EVENTS,
    "streams-v1-declared": DECLARED_EVENTS,
    "streams-v1-holds": HOLD_EVENTS,
    "streams-v1-kept": KEPT_EVENTS,
    "streams-v1-splits": SPLIT_EVENTS,
    "streams-v1-withdrawals": WITHDRAWAL_EVENTS,
}
WRITER = "0a1b2c3d"


def segments(store: LocalStore, events: list[JobEvent]) -> dict[str, bytes]:
    """The events, in segments of about 2 kB, as this version writes them."""
    writer = EventWriter(store, IDENTITY, WRITER, buffer_bytes=2000, flush_interval_s=FOR_EVER, now=lambda: AT)
    with writer._changed:  # nothing is written before all of it waits: so it is always cut in the same places
        for event in events:
            writer.record(event)
    assert writer.close().failed is None
    return {each.key.rpartition("/")[2]: store.get(each.key).body for each in store.list()}


def golden(store: LocalStore, folder: str) -> None:
    for path in sorted((GOLDEN / folder).iterdir()):
        store.put(f"{STREAMS}{WRITER}/{path.name}", path.read_bytes())


def test_every_event_type_is_in_one_of_the_folders() -> None:
    assert sorted(map(repr, EXAMPLE_EVENTS[:-1])) == sorted(
        repr(each) for folder in FOLDERS.values() for each in folder
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_fault_39_streams_of_format_1_are_read_for_ever(folder: str, local_store: LocalStore) -> None:
    golden(local_store, folder)
    assert read(local_store) == FOLDERS[folder]


def test_what_the_first_stream_says_of_itself(local_store: LocalStore) -> None:
    golden(local_store, "streams-v1")
    gaps: list[Gap] = []
    assert isinstance([each.event for each in read_stream(local_store, IDENTITY, gaps=gaps)][-1], StreamEnded)
    # What the example of these two says of itself.
    assert [gap.kind for gap in gaps] == [GapKind.IN_DOUBT, GapKind.DROPPED]
    assert any(isinstance(example_event, EventsDropped) for example_event in EXAMPLE_EVENTS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_this_version_writes_the_golden_bytes(folder: str, local_store: LocalStore) -> None:
    written = {path.name: path.read_bytes() for path in (GOLDEN / folder).iterdir()}
    assert segments(local_store, FOLDERS[folder]) == written
