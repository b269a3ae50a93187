"""One segment of an event stream as bytes (docs/journal-format.md): lines that say their own length and checksum.

    <length, 8 hex digits> <crc32, 8 hex digits> <JSON, so many ASCII bytes>\\n

The first line is the header: format, identity of the run, writer, number of the segment. Every other is a record:
writer, number in this writer's stream, event. The JSON has no line break, so a line break tells a torn end, which is
normal, from a damaged length, which would hide everything behind it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from airflow_recovery.errors import RecordInvalid, StreamDamaged
from airflow_recovery.journal.codec import check_belongs, parse_json
from airflow_recovery.model.codec import canonical_json
from airflow_recovery.model.records import RunIdentity

STREAM_FORMAT = 1
MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_SEGMENT_BYTES = 64 * 1024 * 1024

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) ")
_HEAD_BYTES = 18
_LINE_BREAK = 0x0A


class TornEnd(StreamDamaged):
    """A segment ends in the middle of a line: normal at the end of a stream, whose writer was stopped there."""


@dataclass(frozen=True)
class SegmentHeader:
    """Whose segment it is. ``segment`` counts from 1, ``first`` is the number of its first record."""

    identity: RunIdentity
    writer: str
    segment: int
    first: int

    def line(self) -> bytes:
        """The segment's first line as bytes: its length, its checksum, and this header as JSON."""
        place = {"writer": self.writer, "segment": self.segment, "first": self.first}
        return _line(canonical_json({"format": STREAM_FORMAT, "kind": "stream", **asdict(self.identity), **place}))


def record_line(writer: str, number: int, event: str) -> bytes:
    """One record. ``event`` is canonical JSON already: its size must be known before its number is."""
    return _line(f'{{"event":{event},"seq":{number},"writer":{canonical_json(writer)}}}')


def _line(document: str) -> bytes:
    body = document.encode()
    return b"%08x %08x %s\n" % (len(body), zlib.crc32(body), body)


def read_segment(body: bytes, expected: SegmentHeader, *, where: str) -> Iterator[tuple[int, Any]]:
    """Number and event of each record, in order; ``where`` names the object in messages.

    Raises `TornEnd` behind the last whole line, `StreamDamaged` at any other damage, and a plain `RecordInvalid` for a
    segment of another journal or of a newer version. Records before it have been yielded then.
    """
    lines = _lines(body, where)
    header = next(lines, None)
    if header is None:
        raise StreamDamaged(f"{where}: empty. No writer leaves an empty segment.")
    _check_header(_document(header, where), expected, where)
    number = expected.first
    for line in lines:
        at = f"{where}, record {number}"
        record = _document(line, at)
        if not isinstance(record, dict) or record.keys() != {"writer", "seq", "event"}:
            raise StreamDamaged(f"{at}: expected writer, seq and event, found another document.")
        if record["writer"] != expected.writer or record["seq"] != number:
            raise StreamDamaged(
                f"{at}: expected number {number} of writer {expected.writer}, found {record['seq']!r} of "
                f"{record['writer']!r}; records are missing or mixed up."
            )
        yield number, record["event"]
        number += 1


def rewritten(body: bytes, change: Callable[[Any], Any], *, where: str) -> bytes:
    """The segment with ``change`` made to every event; the same bytes where it changes none.

    Raises `StreamDamaged` as `read_segment` does.
    """
    before = [_document(line, where) for line in _lines(body, where)]
    after = [*before[:1], *({**record, "event": change(record["event"])} for record in before[1:])]
    return body if after == before else b"".join(_line(canonical_json(document)) for document in after)


def _lines(body: bytes, where: str) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        head = _HEAD.match(body, at)
        size = int(head[1], 16) if head is not None else 0
        if size > MAX_EVENT_BYTES:
            raise StreamDamaged(
                f"{where}, byte {at}: a length of {size} bytes is declared, the limit is {MAX_EVENT_BYTES}."
            )
        end = at + _HEAD_BYTES + size
        if head is None or end >= len(body):
            if _LINE_BREAK in body[at:] or (head is None and len(body) - at >= _HEAD_BYTES):
                raise StreamDamaged(f"{where}, byte {at}: the length of a line is damaged.")
            raise TornEnd(f"{where}, byte {at}: cut in the middle of a line.")
        if body[end] != _LINE_BREAK:
            raise StreamDamaged(f"{where}, byte {at}: the line does not end where its length says.")
        line = body[at + _HEAD_BYTES : end]
        if zlib.crc32(line) != int(head[2], 16):
            raise StreamDamaged(f"{where}, byte {at}: the checksum does not match; the record is damaged.")
        yield line
        at = end + 1


def _document(line: bytes, where: str) -> Any:
    """A line that our writers never write (too deep, NaN, a key twice) is damage, whatever its checksum says."""
    try:
        return parse_json(line, where=where)
    except RecordInvalid as error:
        raise StreamDamaged(str(error)) from error


def _check_header(header: Any, expected: SegmentHeader, where: str) -> None:
    if not isinstance(header, dict) or header.get("kind") != "stream" or type(header.get("format")) is not int:
        raise StreamDamaged(f"{where}: expected the header of a stream, found another document.")
    if header["format"] > STREAM_FORMAT:
        raise RecordInvalid(
            f"{where}: written by a newer version (format {header['format']}, this version reads up to "
            f"{STREAM_FORMAT}). Upgrade airflow-recovery here.",
            code="stream-newer",
        )
    check_belongs(header, asdict(expected.identity), where=where)
    place = {"writer": expected.writer, "segment": expected.segment, "first": expected.first}
    if any(header.get(name) != value for name, value in place.items()):
        raise StreamDamaged(
            f"{where}: expected the segment {place}, found {[header.get(name) for name in place]}: it was copied here, "
            "or records before it are missing.",
            code="segment-copied",
        )
