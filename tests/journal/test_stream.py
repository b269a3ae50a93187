"""Recording events: never waits, never raises, and says what it could not write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from example_events import AT, EXAMPLE_EVENTS, FOR_EVER, IDENTITY, STREAMS, read, skipped, write

from airflow_recovery.journal.events import EventsDropped, RegionKept, StreamEnded
from airflow_recovery.journal.history import GapKind, read_stream
from airflow_recovery.journal.stream import MAX_TEXT, EventSink, EventWriter, NoEvents, StreamClosed
from airflow_recovery.store import ObjectInfo, ObjectStore
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb
from airflow_recovery.testing.patience import HANG_S, wait_until

# What streams say of themselves is not for callers to record.
RECORDABLE = [
    example_event for example_event in EXAMPLE_EVENTS if not isinstance(example_event, (EventsDropped, StreamEnded))
]


def test_what_was_recorded_is_read_back_in_order(store: ObjectStore) -> None:
    assert write(store, RECORDABLE) == StreamClosed(written=len(RECORDABLE), dropped=0, failed=None)
    assert read(store) == RECORDABLE
    assert [each.key for each in store.list()] == [f"{STREAMS}w/00000001"]


def test_two_writers_share_no_object(local_store: LocalStore) -> None:
    write(local_store, RECORDABLE[:2], "b/1")
    write(local_store, RECORDABLE[2:4], "a")
    assert read(local_store) == RECORDABLE[2:4] + RECORDABLE[:2]
    assert [each.key for each in local_store.list()] == [f"{STREAMS}a/00000001", f"{STREAMS}b~2F1/00000001"]
    assert {each.writer for each in read_stream(local_store, IDENTITY)} == {"a", "b/1"}


def test_nothing_recorded_starts_no_thread_and_writes_nothing(local_store: LocalStore) -> None:
    before = threading.active_count()
    writer = EventWriter(local_store, IDENTITY, "w")
    assert threading.active_count() == before
    assert writer.close() == StreamClosed(0, 0, None)
    assert list(local_store.list()) == []
    assert read(local_store) == []


def test_a_full_buffer_is_written_before_the_interval(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, IDENTITY, "w", buffer_bytes=1, flush_interval_s=FOR_EVER)
    writer.record(skipped(1))
    wait_until(lambda: len(read(local_store)) == 1, "the events to be written")
    writer.record(skipped(2))
    assert writer.close() == StreamClosed(2, 0, None)
    assert [each.key for each in local_store.list()] == [f"{STREAMS}w/{number:08d}" for number in (1, 2, 3)]


def test_the_interval_writes_what_waits(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, IDENTITY, "w", flush_interval_s=0.01)
    writer.record(skipped(1))
    wait_until(lambda: len(read(local_store)) == 1, "the events to be written")
    assert writer.close() == StreamClosed(1, 0, None)


def test_fault_40_and_42_recording_goes_on_while_the_store_is_down_and_nothing_is_doubled_or_lost(
    local_store: LocalStore,
) -> None:
    faults = [Fault(Verb.PUT_IF_ABSENT, kind) for kind in (FaultKind.SLOW_DOWN, FaultKind.LOST_REPLY)]
    counting = CountingStore(FaultyStore(local_store, faults))
    writer = EventWriter(counting, IDENTITY, "w", buffer_bytes=1, flush_interval_s=0.01)
    for number in range(20):
        writer.record(skipped(number))
    assert writer.close(30) == StreamClosed(20, 0, None)
    assert read(local_store) == [skipped(number) for number in range(20)]
    assert counting.count(Verb.PUT_IF_ABSENT, "00000001") == 3


def test_fault_42_a_store_that_stays_down_drops_visibly_and_raises_nothing(
    local_store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED, times=None)])
    writer = EventWriter(faulty, IDENTITY, "w", buffer_bytes=1, flush_interval_s=0.01, max_waiting_events=3)
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            writer.record(skipped(number))
        closed = writer.close(0.2)
    assert (closed.written, closed.dropped) == (0, 50)
    assert closed.failed is not None
    assert "Recovery is not affected" in caplog.text
    assert list(local_store.list()) == []


class StuckStore(LocalStore):
    """A store whose writes hang until `gate` opens."""

    gate = threading.Event()

    def put_if_absent(self, key: str, body: bytes) -> ObjectInfo:
        self.gate.wait(HANG_S)
        return super().put_if_absent(key, body)


@pytest.fixture
def stuck_store(local_store: LocalStore) -> Iterator[StuckStore]:
    StuckStore.gate.clear()
    yield StuckStore(local_store.base_uri)
    StuckStore.gate.set()


def test_recording_never_waits_for_a_hanging_store_nor_does_close(stuck_store: StuckStore) -> None:
    writer = EventWriter(stuck_store, IDENTITY, "w", buffer_bytes=1, max_waiting_events=2)
    for number in range(10):
        writer.record(skipped(number))
    closed = writer.close(0.05)
    assert (closed.written, closed.dropped) == (0, 10)
    assert closed.failed is not None


def test_after_close_events_are_counted_as_dropped(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, IDENTITY, "w")
    writer.record(skipped(1))
    assert writer.close() == StreamClosed(1, 0, None)
    writer.record(skipped(2))
    again = writer.close()
    assert (again.written, again.dropped) == (1, 1)
    assert again.failed == "the stream was closed already"


def test_two_processes_with_one_writer_id_stop_instead_of_mixing(local_store: LocalStore) -> None:
    write(local_store, [skipped(1)])
    closed = write(local_store, [skipped(2)])
    assert (closed.written, closed.dropped) == (0, 1)
    assert read(local_store) == [skipped(1)]


def test_an_event_that_is_no_json_is_dropped_and_the_others_go_on(local_store: LocalStore) -> None:
    bad = RegionKept(occurred_at=AT, region="b", attempt=1, why="", files_checked=0, seconds_saved=float("nan"))
    closed = write(local_store, [skipped(1), bad, skipped(2)])
    assert (closed.written, closed.dropped) == (2, 1)
    assert [type(each) for each in read(local_store)] == [type(skipped(1)), EventsDropped, type(skipped(2))]


def test_no_events_takes_everything_and_fails_at_nothing() -> None:
    sinks: list[EventSink] = [NoEvents()]
    for sink in sinks:
        sink.record(skipped(1))
        assert sink.close() == StreamClosed(0, 0, None)


def test_fault_42_what_was_dropped_is_said_where_it_is_missing(local_store: LocalStore) -> None:
    """The store is away for longer than the buffer lasts, and comes back."""
    faulty = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.SLOW_DOWN, times=None)])
    writer = EventWriter(faulty, IDENTITY, "w", buffer_bytes=1, flush_interval_s=0.01, max_waiting_events=2)
    writer.record(skipped(0))
    wait_until(lambda: writer._segment is not None, "the events to be written")
    for number in range(1, 11):
        writer.record(skipped(number))
    faulty._faults.clear()
    wait_until(lambda: len(read(local_store, [])) >= 3, "the events to be written")
    writer.record(skipped(11))
    closed = writer.close()
    assert (closed.written, closed.dropped) == (4, 8)
    gaps: list = []
    found = read(local_store, gaps)
    assert [found[0], found[1], found[2], found[4]] == [skipped(number) for number in (0, 1, 2, 11)]
    assert isinstance(found[3], EventsDropped)
    assert found[3].count == 8
    assert [gap.kind for gap in gaps] == [GapKind.DROPPED]


def test_fault_42_what_waits_is_bounded_in_bytes_too(stuck_store: StuckStore) -> None:
    writer = EventWriter(stuck_store, IDENTITY, "w", buffer_bytes=1, max_waiting_bytes=5_000)
    for _ in range(100):
        writer.record(
            RegionKept(occurred_at=AT, region="b", attempt=1, why="x" * 1_000, files_checked=0, seconds_saved=0)
        )
    assert writer._waiting_bytes <= 6_000
    assert writer.close(0.05).dropped == 100


def test_fault_42_control_without_the_bound_all_of_it_waits(stuck_store: StuckStore) -> None:
    writer = EventWriter(stuck_store, IDENTITY, "w", buffer_bytes=1, max_waiting_bytes=2**60)
    for _ in range(100):
        writer.record(
            RegionKept(occurred_at=AT, region="b", attempt=1, why="x" * 1_000, files_checked=0, seconds_saved=0)
        )
    assert writer._waiting_bytes > 90_000
    writer.close(0.05)


def test_an_event_that_is_too_large_is_dropped_alone(local_store: LocalStore) -> None:
    huge = RegionKept(occurred_at=AT, region="b", attempt=1, why="x" * MAX_TEXT, files_checked=0, seconds_saved=0)
    closed = write(local_store, [skipped(1), huge, skipped(2)])
    assert (closed.written, closed.dropped) == (2, 1)
    assert len(read(local_store)) == 3


def test_a_stream_says_that_it_has_ended(local_store: LocalStore) -> None:
    gaps: list = []
    write(local_store, [skipped(1)])
    assert [type(each.event) for each in read_stream(local_store, IDENTITY, gaps=gaps)][-1] is StreamEnded
    assert gaps == []


def test_a_process_that_was_killed_leaves_a_stream_without_an_end(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, IDENTITY, "w", flush_interval_s=0.01)
    writer.record(skipped(1))
    wait_until(lambda: len(read(local_store, [])) == 1, "the events to be written")
    gaps: list = []
    assert read(local_store, gaps) == [skipped(1)]
    assert [(gap.writer, gap.kind) for gap in gaps] == [("w", GapKind.NOT_ENDED)]
    writer.close()


def test_fault_84_free_text_is_masked_before_it_is_written(local_store: LocalStore) -> None:
    write(local_store, RECORDABLE, mask=lambda text: text.replace("branch", "***"))
    assert b"*** " in b"".join(local_store.get(each.key).body for each in local_store.list())
    assert b"branch" not in b"".join(local_store.get(each.key).body for each in local_store.list())


def test_a_mask_that_fails_costs_the_event_and_nothing_else(local_store: LocalStore) -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    closed = write(local_store, [skipped(1)], mask=fail)
    assert (closed.written, closed.dropped) == (0, 1)
