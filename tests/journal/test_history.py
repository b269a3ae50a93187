"""Reading event streams back: loud about damage, never beyond it, within bounded memory."""

from __future__ import annotations

import tracemalloc
import zlib
from dataclasses import dataclass, replace

import pytest
from example_events import AT, IDENTITY, STREAMS, read, skipped, write
from expected_errors import fails_with

from airflow_recovery.errors import StreamDamaged
from airflow_recovery.journal import frames, history
from airflow_recovery.journal.events import JobEvent, RegionSkipped, event_to_json
from airflow_recovery.journal.frames import SegmentHeader, record_line
from airflow_recovery.journal.history import Gap, GapKind, read_stream
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Closed, RunIdentity
from airflow_recovery.store import StoredObject
from airflow_recovery.store.local import LocalStore

ALLOWED: tuple[list[Gap] | None, ...] = (None, [])
"""Holes are refused, and forgiven."""


def line(number: int, event: JobEvent | dict[str, object], writer: str = "w") -> bytes:
    document = event if isinstance(event, dict) else event_to_json(event)
    return record_line(writer, number, canonical_json(document))


def framed(text: bytes) -> bytes:
    """Any bytes with a right length and checksum."""
    return b"%08x %08x %s\n" % (len(text), zlib.crc32(text), text)


def header(segment: int, first: int, identity: RunIdentity = IDENTITY) -> bytes:
    return SegmentHeader(identity, "w", segment, first).line()


@dataclass
class Stream:
    """Segments 1 and 2, with three and two records."""

    store: LocalStore

    def __post_init__(self) -> None:
        lines = [line(number, skipped(number)) for number in range(1, 6)]
        self.first, self.second = header(1, 1) + b"".join(lines[:3]), header(2, 4) + b"".join(lines[3:])
        self.put(1, self.first)
        self.put(2, self.second)

    def put(self, number: int, body: bytes) -> None:
        self.store.put(f"{STREAMS}w/{number:08d}", body)

    def read(self, gaps: list[Gap] | None = None) -> list[JobEvent]:
        return read(self.store, gaps)

    def refused(self, match: str | None = None) -> list[JobEvent]:
        """Read strictly, it raises; else it ends there and the hole is named. What is before it."""
        with pytest.raises(StreamDamaged, match=match):
            self.read()
        gaps: list[Gap] = []
        events = self.read(gaps)
        assert [(gap.writer, gap.kind) for gap in gaps] == [("w", GapKind.DAMAGED)]
        return events


@pytest.fixture
def stream(local_store: LocalStore) -> Stream:
    return Stream(local_store)


def test_the_frame_is_as_documented(stream: Stream) -> None:
    assert stream.read() == [skipped(number) for number in range(1, 6)]


@pytest.mark.slow
def test_fault_34_a_torn_last_record_is_dropped_at_every_length_and_counted(stream: Stream) -> None:
    lengths = set()
    for cut in range(1, len(stream.second)):
        stream.put(2, stream.second[:cut])
        gaps: list[Gap] = []
        lengths.add(len(stream.read(gaps)))
        is_whole_line = stream.second[:cut].endswith(b"\n")
        assert [gap.kind for gap in gaps] == [GapKind.NOT_ENDED if is_whole_line else GapKind.TORN]
        assert len(stream.read()) in (3, 4)
    assert lengths == {3, 4}


def test_fault_34_control_a_cut_in_the_middle_of_the_stream_is_loud(stream: Stream) -> None:
    """Flink reads on with the next file there, and misses the resets that were cut off."""
    for cut in (5, len(stream.first) - 5, len(stream.first) - 1):
        stream.put(1, stream.first[:cut])
        assert stream.refused("cut in the middle") == [skipped(n) for n in (1, 2, 3)][: len(stream.read([]))]


@pytest.mark.slow
def test_fault_35_every_damaged_byte_is_found(stream: Stream) -> None:
    for at in range(len(stream.second)):
        damaged = bytearray(stream.second)
        damaged[at] ^= 1 << at % 8
        stream.put(2, bytes(damaged))
        assert stream.refused("00000002")[:3] == [skipped(1), skipped(2), skipped(3)]


def test_fault_35_control_without_the_checksum_a_changed_letter_is_believed(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.put(2, stream.second.replace(b'"r5"', b'"rX"'))
    stream.refused("checksum")
    claimed = zlib.crc32(stream.second.splitlines()[-1][18:])
    real = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda body: claimed if b'"rX"' in body else real(body))
    assert stream.read()[-1] == RegionSkipped(occurred_at=AT, region="rX", why="x")


def test_fault_35_what_other_writers_say_is_good_all_the_same(stream: Stream) -> None:
    write(stream.store, [skipped(9)], "x")
    stream.put(1, stream.first.replace(b'"r2"', b'"rX"'))
    gaps: list[Gap] = []
    assert stream.read(gaps) == [skipped(1), skipped(9)]
    assert [gap.kind for gap in gaps] == [GapKind.DAMAGED]


def test_fault_36_a_missing_segment_is_loud_and_nothing_behind_the_hole_is_believed(stream: Stream) -> None:
    stream.put(4, header(4, 6) + line(6, skipped(6)))
    assert stream.refused("segment is missing") == [skipped(number) for number in range(1, 6)]


def test_fault_36_a_missing_first_segment_is_loud(stream: Stream) -> None:
    stream.store.delete([f"{STREAMS}w/00000001"])
    assert stream.refused("expected segment 00000001") == []


def test_fault_36_a_missing_or_doubled_record_is_loud(stream: Stream) -> None:
    start, fourth, fifth = stream.second.splitlines(keepends=True)
    stream.put(2, start + fifth)
    stream.refused("expected number 4 of writer w, found 5")
    stream.put(2, start + fourth + fourth)
    stream.refused("expected number 5 of writer w, found 4")


def test_fault_36_a_segment_copied_to_another_number_or_writer_is_refused(stream: Stream) -> None:
    stream.put(3, stream.second)
    stream.refused("it was copied here")
    stream.store.delete([f"{STREAMS}w/{number:08d}" for number in (1, 2, 3)])
    stream.store.put(f"{STREAMS}other/00000001", stream.first)
    with fails_with("segment-copied"):
        stream.read()


def test_fault_37_an_empty_segment_is_refused(stream: Stream) -> None:
    stream.put(2, b"")
    assert stream.refused("0 bytes") == [skipped(1), skipped(2), skipped(3)]


@pytest.mark.parametrize("length", [b"ffffffff", b"7fffffff", b"01000001"])
def test_fault_37_a_huge_declared_length_is_refused_with_bounded_memory(stream: Stream, length: bytes) -> None:
    start, fourth, fifth = stream.second.splitlines(keepends=True)
    stream.put(2, start + length + fourth[8:] + fifth)
    tracemalloc.start()
    found = stream.refused("limit")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [skipped(1), skipped(2), skipped(3)]
    assert peak < 2 * 1024 * 1024


@pytest.mark.parametrize("length", [b"00000000", b"00000001", b"00000fff", b"0000000g", b"-0000001"])
def test_fault_37_a_wrong_length_is_refused_and_never_taken_for_a_torn_end(stream: Stream, length: bytes) -> None:
    """Too long a length would hide everything behind it, as it does in Flink."""
    start, fourth, fifth = stream.second.splitlines(keepends=True)
    for damaged in (start + length + fourth[8:] + fifth, start + fourth + length + fifth[8:]):
        stream.put(2, damaged)
        stream.refused()


def test_fault_37_a_huge_segment_is_refused_unread(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_SEGMENT_BYTES", 100)

    def get(key: str, max_bytes: int | None = None) -> StoredObject:
        raise AssertionError("not to be asked for")

    monkeypatch.setattr(stream.store, "get", get)
    stream.refused("at most 100")


def test_fault_38_an_optional_event_of_a_newer_version_is_skipped(stream: Stream) -> None:
    unknown = {"type": "FromTheFuture", "optional": True, "occurred_at": AT}
    stream.put(3, header(3, 6) + line(6, unknown) + line(7, skipped(7)))
    assert stream.read() == [*(skipped(number) for number in range(1, 6)), skipped(7)]


def test_fault_38_another_event_of_a_newer_version_is_refused_even_where_holes_are_forgiven(stream: Stream) -> None:
    stream.put(3, header(3, 6) + line(6, {"type": "FromTheFuture", "optional": False, "occurred_at": AT}))
    for gaps in ALLOWED:
        with fails_with("event-unknown", found="FromTheFuture"):
            stream.read(gaps)


def test_fault_83_a_newer_format_is_refused_with_an_upgrade_hint(stream: Stream) -> None:
    newer = header(1, 1).split(b" ", 2)[2].rstrip().replace(b'"format":1', b'"format":2')
    stream.put(1, framed(newer))
    for gaps in ALLOWED:
        with fails_with("stream-newer"):
            stream.read(gaps)


@pytest.mark.parametrize("field", ["dag_id", "run_key", "group_id"])
def test_fault_44_streams_of_another_journal_under_the_prefix_are_refused(stream: Stream, field: str) -> None:
    other = replace(IDENTITY, **{field: "other"})
    stream.put(1, header(1, 1, other) + line(1, skipped(1)))
    for gaps in ALLOWED:
        with fails_with("record-of-other-journal"):
            stream.read(gaps)


def test_fault_44_control_under_their_own_identity_they_are_read(local_store: LocalStore) -> None:
    other = replace(IDENTITY, dag_id="other")
    local_store.put(f"{JournalLayout(other).streams}w/00000001", header(1, 1, other) + line(1, skipped(1)))
    assert [each.event for each in read_stream(local_store, other)] == [skipped(1)]


@pytest.mark.parametrize(
    "document",
    [
        b'{"event":' + b"[" * 100_000 + b"]" * 100_000 + b',"seq":4,"writer":"w"}',
        b'{"event":{"n":NaN},"seq":4,"writer":"w"}',
        b'{"event":{"n":1e999},"seq":4,"writer":"w"}',
        b'{"event":{"n":1,"n":2},"seq":4,"writer":"w"}',
        b'{"event":{},"seq":4,"seq":4,"writer":"w"}',
        b'{"event":{},"seq":4,"writer":"w","more":1}',
        b"[]",
        b"\xff",
    ],
    ids=["deep", "NaN", "infinite", "twice", "twice outside", "more", "no object", "no text"],
)
def test_fault_87_json_that_no_writer_of_ours_leaves_is_refused(stream: Stream, document: bytes) -> None:
    start = stream.second.splitlines(keepends=True)[0]
    stream.put(2, start + framed(document))
    assert stream.refused() == [skipped(1), skipped(2), skipped(3)]


def test_fault_87_control_without_the_limit_the_parser_gives_up(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stream.second.splitlines(keepends=True)[0]
    deep = b'{"event":' + b"[" * 100_000 + b"]" * 100_000 + b',"seq":4,"writer":"w"}'
    stream.put(2, start + framed(deep))
    monkeypatch.setattr("airflow_recovery.journal.codec.MAX_DEPTH", 1_000_000)
    with pytest.raises(RecursionError):
        stream.read([])


def test_fault_43_a_segment_that_a_stalled_writer_adds_after_the_purge_does_not_count(local_store: LocalStore) -> None:
    journal = Journal(local_store, IDENTITY, writer="gc")
    local_store.put(f"{STREAMS}w/00000002", header(2, 4) + line(4, skipped(4)))
    gaps: list[Gap] = []
    with fails_with("segment-missing"):
        read(local_store)
    journal.close(Closed((InputRef("b", 3),)), 1)
    assert read(local_store) == []
    assert read(local_store, gaps) == []
    assert [gap.kind for gap in gaps] == [GapKind.PURGED]


def test_a_stranger_among_the_streams_is_named(stream: Stream) -> None:
    stream.store.put(f"{STREAMS}README", b"hello")
    with fails_with("segment-missing"):
        stream.read()


def test_what_is_before_the_damage_is_read(stream: Stream) -> None:
    stream.put(2, framed(b"{}"))
    found = []
    with pytest.raises(StreamDamaged):  # noqa: PT012  the loop is what is tested
        for each in read_stream(stream.store, IDENTITY):
            found.append(each.event)  # noqa: PERF401
    assert found == [skipped(1), skipped(2), skipped(3)]


def test_many_streams_are_read_in_batches_of_bounded_size(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        write(local_store, [skipped(number)], f"w{number:02d}")
    size = max(each.size for each in local_store.list())
    sizes = []
    real = history.get_many
    monkeypatch.setattr(history, "BATCH_BYTES", 3 * size)
    monkeypatch.setattr(
        history, "get_many", lambda store, keys, **rest: sizes.append(len(keys)) or real(store, keys, **rest)
    )
    assert read(local_store) == [skipped(number) for number in range(20)]
    assert max(sizes) <= 3


def test_the_limits_leave_room_for_each_other() -> None:
    """An event of the largest size, behind a full buffer of the largest size, is still a segment that is read."""
    assert frames.MAX_EVENT_BYTES < frames.MAX_SEGMENT_BYTES // 2
