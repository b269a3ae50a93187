"""Event streams: recording never disturbs, reading is loud about damage."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from airflow_recovery.errors import ObjectMissing, RecordInvalid
from airflow_recovery.journal import events as events_module
from airflow_recovery.journal.codec import canonical_json, parse_json
from airflow_recovery.journal.events import (
    AttemptClaimed,
    AttemptFailed,
    ConsumerKept,
    Degraded,
    ExecutionVertexFinished,
    ExecutionVertexReset,
    InputsLost,
    JobEvent,
    JobVertexInitialized,
    RegionKept,
    RegionSkipped,
    ResultPublished,
    event_from_json,
    event_to_json,
)
from airflow_recovery.journal.records import Failure, InputPin
from airflow_recovery.journal.stream import EventSink, EventWriter, NoEvents, StreamClosed, read_stream
from airflow_recovery.storage import ObjectStore, StoredObject
from airflow_recovery.storage.local import LocalStore
from airflow_recovery.testing import CountingStore, Fault, FaultKind, FaultyStore, Verb

AT = "2026-01-01T00:00:00+00:00"
FOR_EVER = 3600.0
EVENTS: list[JobEvent] = [
    AttemptClaimed(occurred_at=AT, region="b", attempt=2, writer="w", try_number=3, inputs=(InputPin("a", 1),)),
    ExecutionVertexFinished(occurred_at=AT, region="b", attempt=2, rows=(("b", 10), ("c", 0)), seconds=1.5),
    RegionKept(occurred_at=AT, region="b", attempt=2, why="stands", files_checked=4, seconds_saved=None),
    ConsumerKept(occurred_at=AT, region="b", producer="a", read=1, now=2, by="verify", detail=""),
    ExecutionVertexReset(occurred_at=AT, region="b", attempt=2, who="a person", why="é"),
    InputsLost(occurred_at=AT, region="b", lost=(InputPin("a", 1),), plan=(("a", "lost"), ("b", "reads a"))),
    AttemptFailed(
        occurred_at=AT,
        region="b",
        attempt=2,
        failure=Failure("E", "text", chain=("A: a",), vertex="v", labels=(("class", "user code"),)),
    ),
    RegionSkipped(occurred_at=AT, region="b", why="branch"),
    ResultPublished(occurred_at=AT, number=1, regions=(InputPin("a", 1), InputPin("b", 2))),
    Degraded(occurred_at=AT, what="no stream", consequence="no history"),
    JobVertexInitialized(
        occurred_at=AT, region="m", parallelism=2, keys=("2013-02", "ü"), appeared=("ü",), vanished=("2013-01",)
    ),
]


def skipped(number: int) -> RegionSkipped:
    return RegionSkipped(occurred_at=AT, region=f"r{number}", why="x")


def eventually(claim: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline_s, "not within 20 s"
        threading.Event().wait(0.005)


def write(store: ObjectStore, events: list[JobEvent], writer_id: str = "w", **options: float) -> StreamClosed:
    writer = EventWriter(store, "s", writer_id, flush_interval_s=FOR_EVER, **options)  # type: ignore[arg-type]
    for event in events:
        writer.record(event)
    return writer.close()


def framed(number: int, event: dict[str, object]) -> bytes:
    crc = zlib.crc32(canonical_json(event).encode())
    return canonical_json({"seq": number, "crc": crc, "event": event}).encode() + b"\n"


# --- events ---


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_gives_itself_back(event: JobEvent) -> None:
    document = parse_json(canonical_json(event_to_json(event)).encode(), where="here")
    assert event_from_json(document, where="here") == event


def test_every_event_type_is_registered_and_tried() -> None:
    assert {type(each).__name__ for each in EVENTS} == set(events_module.EVENTS)


@pytest.mark.parametrize(
    "change", [{"attempt": "2"}, {"attempt": True}, {"rows": [["b"]]}, {"rows": "b"}, {"seconds": None}, {"type": 1}]
)
def test_an_event_with_wrong_fields_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordInvalid, match="here"):
        event_from_json({**event_to_json(EVENTS[1]), **change}, where="here")


def test_an_unknown_event_is_refused_unless_it_is_optional() -> None:
    document = {"type": "FromTheFuture", "occurred_at": AT}
    with pytest.raises(RecordInvalid, match="Upgrade"):
        event_from_json({**document, "optional": False}, where="here")
    assert event_from_json({**document, "optional": True}, where="here") is None


# --- writing ---


def test_what_was_recorded_is_read_back_in_order(store: ObjectStore) -> None:
    assert write(store, EVENTS) == StreamClosed(written=len(EVENTS), dropped=0, failed=None)
    assert list(read_stream(store, "s")) == EVENTS
    assert [each.key for each in store.list()] == ["s/w/00000001"]


def test_two_writers_share_no_object(local_store: LocalStore) -> None:
    write(local_store, EVENTS[:2], "b/1")
    write(local_store, EVENTS[2:4], "a")
    assert list(read_stream(local_store, "s/")) == EVENTS[2:4] + EVENTS[:2]
    assert [each.key for each in local_store.list()] == ["s/a/00000001", "s/b~2F1/00000001"]


def test_nothing_recorded_starts_no_thread_and_writes_nothing(local_store: LocalStore) -> None:
    before = threading.active_count()
    writer = EventWriter(local_store, "s", "w")
    assert threading.active_count() == before
    assert writer.close() == StreamClosed(0, 0, None)
    assert list(local_store.list()) == []
    assert list(read_stream(local_store, "s")) == []


def test_a_full_buffer_is_written_before_the_interval(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, "s", "w", buffer_bytes=1, flush_interval_s=FOR_EVER)
    writer.record(skipped(1))
    eventually(lambda: len(list(read_stream(local_store, "s"))) == 1)
    writer.record(skipped(2))
    assert writer.close() == StreamClosed(2, 0, None)
    assert [each.key for each in local_store.list()] == ["s/w/00000001", "s/w/00000002"]


def test_the_interval_writes_what_waits(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, "s", "w", flush_interval_s=0.01)
    writer.record(skipped(1))
    eventually(lambda: len(list(read_stream(local_store, "s"))) == 1)
    assert writer.close() == StreamClosed(1, 0, None)


def test_recording_goes_on_while_the_store_is_down_and_leaves_no_hole(local_store: LocalStore) -> None:
    faults = [Fault(Verb.PUT_IF_ABSENT, kind) for kind in (FaultKind.SLOW_DOWN, FaultKind.LOST_REPLY)]
    counting = CountingStore(FaultyStore(local_store, faults))
    writer = EventWriter(counting, "s", "w", buffer_bytes=1, flush_interval_s=0.01)
    for number in range(20):
        writer.record(skipped(number))
    assert writer.close(30) == StreamClosed(20, 0, None)
    assert list(read_stream(local_store, "s")) == [skipped(number) for number in range(20)]
    assert counting.count(Verb.PUT_IF_ABSENT, "00000001") == 3


def test_a_store_that_stays_down_drops_visibly_and_raises_nothing(
    local_store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = FaultyStore(local_store, [Fault(Verb.PUT_IF_ABSENT, FaultKind.DENIED, times=None)])
    writer = EventWriter(faulty, "s", "w", buffer_bytes=1, flush_interval_s=0.01, max_waiting_events=3)
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

    def put_if_absent(self, key: str, body: bytes) -> object:  # type: ignore[override]
        self.gate.wait(60)
        return super().put_if_absent(key, body)


@pytest.fixture
def stuck_store(local_store: LocalStore) -> Iterator[StuckStore]:
    StuckStore.gate.clear()
    yield StuckStore(local_store.base_uri)
    StuckStore.gate.set()


def test_recording_never_waits_for_a_hanging_store_nor_does_close(stuck_store: StuckStore) -> None:
    start_s = time.monotonic()
    writer = EventWriter(stuck_store, "s", "w", buffer_bytes=1, max_waiting_events=2)
    for number in range(10):
        writer.record(skipped(number))
    closed = writer.close(0.05)
    assert time.monotonic() - start_s < 10
    assert (closed.written, closed.dropped) == (0, 10)
    assert closed.failed is not None


def test_after_close_events_are_counted_as_dropped(local_store: LocalStore) -> None:
    writer = EventWriter(local_store, "s", "w")
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
    assert list(read_stream(local_store, "s")) == [skipped(1)]


def test_an_event_that_is_no_json_is_dropped_and_the_others_go_on(local_store: LocalStore) -> None:
    bad = ExecutionVertexFinished(occurred_at=AT, region="b", attempt=1, rows=(), seconds=float("nan"))
    closed = write(local_store, [skipped(1), bad, skipped(2)])
    assert (closed.written, closed.dropped) == (2, 1)
    assert list(read_stream(local_store, "s")) == [skipped(1), skipped(2)]


def test_no_events_takes_everything_and_fails_at_nothing() -> None:
    sinks: list[EventSink] = [NoEvents()]
    for sink in sinks:
        sink.record(skipped(1))
        assert sink.close() == StreamClosed(0, 0, None)


# --- reading ---


@dataclass
class Stream:
    """Segments 1 and 2, with three and two records."""

    store: LocalStore

    def __post_init__(self) -> None:
        lines = [framed(number, event_to_json(skipped(number))) for number in range(1, 6)]
        self.first, self.second = b"".join(lines[:3]), b"".join(lines[3:])
        self.put(1, self.first)
        self.put(2, self.second)

    def put(self, number: int, body: bytes) -> None:
        self.store.put(f"s/w/{number:08d}", body)

    def read(self) -> list[JobEvent]:
        return list(read_stream(self.store, "s"))


@pytest.fixture
def stream(local_store: LocalStore) -> Stream:
    return Stream(local_store)


def test_the_frame_is_as_documented(stream: Stream) -> None:
    assert stream.read() == [skipped(number) for number in range(1, 6)]


def test_fault_34_a_torn_last_record_is_dropped_at_every_length(stream: Stream) -> None:
    lengths = set()
    for cut in range(len(stream.second)):
        stream.put(2, stream.second[:cut])
        lengths.add(len(stream.read()))
    assert lengths == {3, 4}


def test_a_cut_in_the_middle_of_the_stream_is_loud(stream: Stream) -> None:
    for cut in (0, 5, len(stream.first) - 5, len(stream.first) - 1):
        stream.put(1, stream.first[:cut])
        with pytest.raises(RecordInvalid, match="00000001"):
            stream.read()


def test_every_damaged_byte_is_found(stream: Stream) -> None:
    for at in range(len(stream.second) - 1):
        damaged = bytearray(stream.second)
        damaged[at] ^= 0x01
        stream.put(2, bytes(damaged))
        with pytest.raises(RecordInvalid, match="00000002"):
            stream.read()


def test_negative_control_without_the_checksum_a_changed_letter_is_believed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put(2, stream.second.replace(b'"r5"', b'"rX"'))
    with pytest.raises(RecordInvalid, match="checksum"):
        stream.read()
    claimed = parse_json(stream.second.splitlines()[1], where="")["crc"]
    real = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda body: claimed if b"rX" in body else real(body))
    assert stream.read()[-1] == RegionSkipped(occurred_at=AT, region="rX", why="x")


def test_a_missing_segment_is_loud(stream: Stream) -> None:
    stream.put(4, b"")
    with pytest.raises(RecordInvalid, match="segment is missing"):
        stream.read()


def test_a_missing_or_doubled_record_is_loud(stream: Stream) -> None:
    stream.put(2, stream.second.splitlines(keepends=True)[1])
    with pytest.raises(RecordInvalid, match="expected number 4, found 5"):
        stream.read()
    stream.put(2, stream.second.splitlines(keepends=True)[0] * 2)
    with pytest.raises(RecordInvalid, match="expected number 5, found 4"):
        stream.read()


def test_what_is_before_the_damage_is_read(stream: Stream) -> None:
    stream.put(2, b"{}\n")
    found = []
    with pytest.raises(RecordInvalid):  # noqa: PT012  the loop is what is tested
        for event in read_stream(stream.store, "s"):
            found.append(event)  # noqa: PERF402
    assert found == [skipped(1), skipped(2), skipped(3)]


def test_a_huge_segment_is_refused_unread(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.journal.stream.MAX_RECORD_BYTES", 100)

    def read(key: str) -> StoredObject:
        raise ObjectMissing("not to be asked for")

    monkeypatch.setattr(stream.store, "get", read)
    with pytest.raises(RecordInvalid, match="limit"):
        stream.read()


def test_an_optional_event_of_a_newer_version_is_skipped(stream: Stream) -> None:
    unknown = {"type": "FromTheFuture", "optional": True, "occurred_at": AT}
    stream.put(3, framed(6, unknown) + framed(7, event_to_json(skipped(7))))
    assert stream.read()[-1] == skipped(7)
    assert len(stream.read()) == 6
