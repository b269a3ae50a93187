"""The files of a result that a user's own application has written, read again a part at a time.

Each is read as what its name says that it is:

    .parquet, .orc              rows with columns
    .json, .jsonl, .ndjson      a JSON document a line; the order of its names does not count
    .csv, .tsv, .txt            a text a line; a header is a row of each file

Texts may be compressed (``.gz``, ``.bz2``). What can't be read so is `NotComparable`.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_recovery.model.location import key_below
from airflow_recovery.results.row_digest import NOT_SHOWN
from airflow_recovery.store.object_store import RangeStore

if TYPE_CHECKING:
    from airflow_recovery.model.manifest import PartitionManifest, ResultObject
    from airflow_recovery.store.object_store import ObjectStore

BATCH_ROWS = 65_536
BATCH_BYTES = 64 * 1024 * 1024
"""About how much of a file is in memory at a time; of ORC a stripe."""
SMALL_BYTES = 16 * 1024 * 1024
"""A file up to this size is read in one request."""
_BLOCK_BYTES = 1024 * 1024
_TYPES_OF_ARROW = frozenset(
    {"NONE", "STRING", "MAP", "LIST", "DECIMAL", "DATE", "TIME", "TIMESTAMP", "INT", "FLOAT16", "NULL"}
)
"""Parquet's types, by their names in pyarrow, each of which is a type of Arrow as well."""
_NAME = re.compile(r"\.(parquet|orc|jsonl?|ndjson|csv|tsv|txt)(?:\.(gz|bz2))?$", re.IGNORECASE)


class NotComparable(Exception):
    """The rows of a result can't be digested; the text says why."""


class StoredFiles:
    """The files of ``manifest``, whose objects are in ``store``; from now on they may be read for ``timeout_s``."""

    def __init__(self, manifest: PartitionManifest, store: ObjectStore, timeout_s: float) -> None:
        self.manifest = manifest
        self._store = store
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s

    def columns(self, written: ResultObject, kind: str) -> Iterator[Any]:
        """The schema of a file of ``kind`` ``parquet`` or ``orc``, and then its rows, as record batches."""
        with self.open(written) as file:
            for batch in _parquet(file) if kind == "parquet" else _orc(file):
                self.check_time()
                yield batch

    def lines(self, written: ResultObject, kind: str, packing: str, *, as_text: bool) -> Iterator[Any]:
        """The lines of a file, as record batches of one column: what they mean by ``kind``, or as they are."""
        # Lines in their order are the text itself, wherever a row ends in it.
        read = None if as_text else _READS.get(kind)
        with self.open(written) as file, _unpacked(file, packing) as text:
            for batch in _lines(text, read):
                self.check_time()
                yield batch

    def open(self, written: ResultObject) -> BinaryIO:
        """Its bytes, as they were registered. Raises `NotComparable` where it is another file now, or too large."""
        self.check_time()
        key = key_below(self._store.base_uri, f"{self.manifest.location}/{written.path}")
        if written.size <= SMALL_BYTES:
            stored = self._store.get(key, SMALL_BYTES)
            if (stored.info.size, stored.info.etag) != (written.size, written.etag):
                raise NotComparable(f"{written.path} was altered meanwhile")
            return io.BytesIO(stored.body)
        if not isinstance(self._store, RangeStore):
            raise NotComparable(f"{written.path} has {written.size} bytes, and its store reads whole objects alone")
        return io.BufferedReader(_RangeFile(self._store, key, written.size), _BLOCK_BYTES)

    def check_time(self) -> None:
        """Raises `NotComparable` when its time is over."""
        if time.monotonic() > self._deadline_s:
            raise NotComparable(f"it takes longer than verify_timeout={self._timeout_s:g} s")


def format_of(path: str) -> tuple[str, str]:
    """The format of a file, and how it is compressed (``""`` if it is not), by its name. Raises `NotComparable`."""
    match = _NAME.search(path)
    if match is None:
        raise NotComparable(f"{path} is of no format that is known by its name")
    return match[1].lower(), (match[2] or "").lower()


class _RangeFile(io.RawIOBase):
    """An object as a file, a part of it a request."""

    def __init__(self, store: RangeStore, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size - self._at)
        if length <= 0:
            return 0
        body = self._store.get_range(self._key, self._at, length)
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def _parquet(file: BinaryIO) -> Iterator[Any]:
    """Its schema, and then its rows."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    parquet = pq.ParquetFile(file, buffer_size=_BLOCK_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us")
    schema = _with_types(parquet)
    yield schema
    metadata = parquet.metadata
    unpacked = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    rows = BATCH_BYTES * metadata.num_rows // max(unpacked, 1)
    for batch in parquet.iter_batches(batch_size=max(1, min(BATCH_ROWS, rows))):
        yield batch.replace_schema_metadata(schema.metadata)


def _with_types(parquet: Any) -> Any:
    """The schema of a `pyarrow.parquet.ParquetFile`, with the types that Arrow does not have in its metadata.

    Spark's moments are INT96, which Arrow reads as times without a zone.
    """
    leaves = [parquet.schema.column(at) for at in range(len(parquet.schema))]
    types = [(leaf.path, "INT96" if leaf.physical_type == "INT96" else leaf.logical_type.type) for leaf in leaves]
    unknown = [[path, name] for path, name in types if name not in _TYPES_OF_ARROW]
    schema = parquet.schema_arrow
    if not unknown:
        return schema
    return schema.with_metadata({**(schema.metadata or {}), NOT_SHOWN: json.dumps(unknown)})


def _orc(file: BinaryIO) -> Iterator[Any]:
    """Its schema, and then its rows."""
    import pyarrow.orc as orc  # type: ignore[import-untyped]

    opened = orc.ORCFile(file)
    yield opened.schema
    for at in range(opened.nstripes):
        stripe = opened.read_stripe(at)
        for start in range(0, stripe.num_rows, BATCH_ROWS):
            yield stripe.slice(start, BATCH_ROWS)


def _unpacked(file: BinaryIO, packing: str) -> Any:
    if packing == "gz":
        return gzip.open(file)
    return bz2.open(file) if packing == "bz2" else file


def _lines(text: BinaryIO, read: Callable[[bytes], bytes] | None) -> Iterator[Any]:
    """The lines of a text, each as ``read`` makes it, as record batches. Raises `NotComparable`."""
    import pyarrow as pa

    lines: list[bytes] = []
    size = 0
    while line := text.readline(BATCH_BYTES):
        if len(line) == BATCH_BYTES:
            raise NotComparable(f"a line has more than {BATCH_BYTES} bytes")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        lines.append(line if read is None else read(line))
        size += len(line)
        if len(lines) == BATCH_ROWS or size > BATCH_BYTES:
            yield pa.record_batch({"": pa.array(lines, pa.large_binary())})
            lines, size = [], 0
    if lines:
        yield pa.record_batch({"": pa.array(lines, pa.large_binary())})


def _document(line: bytes) -> bytes:
    """A JSON document with its names in order, and its numbers as they are written."""
    document = json.loads(
        line, object_pairs_hook=_object, parse_float=_number, parse_int=_number, parse_constant=_number
    )
    return json.dumps(document, separators=(",", ":")).encode()


def _object(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    return {"object": sorted(pairs, key=lambda pair: pair[0])}


def _number(text: str) -> Mapping[str, str]:
    return {"number": text}


def _quoted_row(line: bytes) -> bytes:
    """A line of CSV. Raises `NotComparable` where a quoted value may go on in the next one, in whatever dialect.

    A quote within a value is doubled, or has a backslash before it: one of the two ways of counting finds the quotes
    of a line that ends within a value odd.
    """
    quotes = line.count(b'"')
    if quotes % 2 or (quotes - line.count(b'\\"')) % 2:
        raise NotComparable("a value may have several lines (a line has an odd number of quotes)")
    return line


_READS = {**dict.fromkeys(("json", "jsonl", "ndjson"), _document), **dict.fromkeys(("csv", "tsv"), _quoted_row)}
"""What a line is compared as, by the format; of any other, as it is."""
