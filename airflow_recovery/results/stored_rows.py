"""The rows of a result that a user's own application has written, read again to digest them.

Each file is read as what its name says that it is, a part of it at a time:

    .parquet, .orc              rows with columns; a folder ``day=2013-01-01`` is a column, too, as text
    .json, .jsonl, .ndjson      a JSON document a line; the order of its names does not count
    .csv, .tsv, .txt            a text a line; a header is a row of each file
    a folder with _delta_log    the table's newest version, by delta-rs

Texts may be compressed (``.gz``, ``.bz2``). What can't be read so is `NotComparable`: also a table of Iceberg or Hudi,
whose folders hold files that are no part of the table any more.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

from airflow_recovery.model.location import is_hidden_from_spark, key_below
from airflow_recovery.store.object_store import RangeStore

if TYPE_CHECKING:
    from airflow_recovery.model.manifest import PartitionManifest, ResultObject
    from airflow_recovery.results.row_digest import RowDigest
    from airflow_recovery.store.object_store import ObjectStore

BATCH_ROWS = 65_536
BATCH_BYTES = 64 * 1024 * 1024
"""About how much of a file is in memory at a time; of ORC a stripe."""
SMALL_BYTES = 16 * 1024 * 1024
"""A file up to this size is read in one request."""
_BLOCK_BYTES = 1024 * 1024
_NAME = re.compile(r"\.(parquet|orc|jsonl?|ndjson|csv|tsv|txt)(?:\.(gz|bz2))?$", re.IGNORECASE)
_RANDOM_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


class NotComparable(Exception):
    """The rows of a result can't be digested; the text says why."""


@dataclass(frozen=True)
class ReadLimits:
    """How much may be read of one result to compare its rows: bytes, as its files have them; and for how long.

    ``in_order``: rows are the same only in the same order and files.
    """

    max_bytes: int
    timeout_s: float
    in_order: bool = False


class StoredRows:
    """The rows of ``manifest``, whose objects are in ``store``. ``delta_options``: delta-rs' storage options.

    Raises `NotComparable`, the store's errors, and whatever a library says of a file that is damaged.
    """

    def __init__(
        self,
        manifest: PartitionManifest,
        store: ObjectStore,
        limits: ReadLimits,
        delta_options: Callable[[], dict[str, str]],
    ) -> None:
        self._manifest = manifest
        self._store = store
        self._limits = limits
        self._delta_options = delta_options
        self._objects = [written for written in manifest.objects if is_data(written.path)]
        self._deadline_s = time.monotonic() + limits.timeout_s

    @property
    def size(self) -> int:
        """How many bytes its files have."""
        return sum(written.size for written in self._objects)

    def digest(self) -> RowDigest:
        """Read all rows."""
        if self.size > self._limits.max_bytes:
            raise NotComparable(f"{self.size} bytes are more than verify_max_bytes={self._limits.max_bytes}")
        from airflow_recovery.results.row_digest import RowDigest

        digest = RowDigest(in_order=self._limits.in_order)
        names = {segment for written in self._manifest.objects for segment in written.path.split("/")[:-1]}
        if "_delta_log" in names and self._limits.in_order:
            raise NotComparable("the rows of a Delta table have no order")
        if "_delta_log" in names:
            self._add_delta(digest)
        elif any(written.path.endswith(".metadata.json") for written in self._objects):
            raise NotComparable("which files belong to a table of Iceberg is not known here")
        else:
            for written in self._objects:
                self._add(digest, written)
        return digest

    def _add(self, digest: RowDigest, written: ResultObject) -> None:
        match = _NAME.search(written.path)
        if match is None:
            raise NotComparable(f"{written.path} is of no format that is known by its name")
        kind, packing = match[1].lower(), (match[2] or "").lower()
        digest.begin_file(stable_name(written.path))
        folders = dict(_folders(written.path))
        if kind in ("parquet", "orc"):
            with self._open(written) as file:
                rows = _parquet(file) if kind == "parquet" else _orc(file)
                schema = next(rows)
                if any(name.startswith("_hoodie_") for name in schema.names):
                    raise NotComparable("which files belong to a table of Hudi is not known here")
                digest.add_schema(schema, folders)
                for batch in rows:
                    self._check_time()
                    digest.add(batch, folders)
            return
        # Lines in their order are the text itself, wherever a row ends in it.
        reads = {} if self._limits.in_order else _READS
        with self._open(written) as file, _unpacked(file, packing) as text:
            for batch in _lines(text, reads.get(kind)):
                self._check_time()
                digest.add(batch, folders)

    def _add_delta(self, digest: RowDigest) -> None:
        try:
            import deltalake
        except ImportError:
            raise NotComparable("deltalake (delta-rs) is not installed: install airflow-recovery[sinks]") from None
        uri = self._manifest.location.replace("s3a://", "s3://", 1)
        table = deltalake.DeltaTable(uri, storage_options=self._delta_options() or None)
        dataset = table.to_pyarrow_dataset()
        digest.add_schema(dataset.schema, {})
        for batch in dataset.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
            self._check_time()
            digest.add(batch, {})

    def _open(self, written: ResultObject) -> BinaryIO:
        key = key_below(self._store.base_uri, f"{self._manifest.location}/{written.path}")
        if written.size <= SMALL_BYTES:
            stored = self._store.get(key, SMALL_BYTES)
            if (stored.info.size, stored.info.etag) != (written.size, written.etag):
                raise NotComparable(f"{written.path} was altered meanwhile")
            return io.BytesIO(stored.body)
        if not isinstance(self._store, RangeStore):
            raise NotComparable(f"{written.path} has {written.size} bytes, and its store reads whole objects alone")
        return io.BufferedReader(_RangeFile(self._store, key, written.size), _BLOCK_BYTES)

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline_s:
            raise NotComparable(f"it takes longer than verify_timeout={self._limits.timeout_s:g} s")


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


def is_data(path: str) -> bool:
    """Whether Spark would read this object of a folder."""
    return not any(map(is_hidden_from_spark, path.split("/")))


def stable_name(path: str) -> str:
    """``path`` without what Spark puts into the names of its files, other for each job."""
    return _RANDOM_NAME.sub("*", path)


def _folders(path: str) -> Iterator[tuple[str, str | None]]:
    """The columns that are folders on the way to a file, with their values."""
    for segment in path.split("/")[:-1]:
        name, is_column, value = segment.partition("=")
        if is_column:
            yield unquote(name), None if value == _NULL_FOLDER else unquote(value)


def _parquet(file: BinaryIO) -> Iterator[Any]:
    """Its schema, and then its rows."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    parquet = pq.ParquetFile(file, buffer_size=_BLOCK_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us")
    yield parquet.schema_arrow
    metadata = parquet.metadata
    unpacked = sum(metadata.row_group(at).total_byte_size for at in range(metadata.num_row_groups))
    rows = BATCH_BYTES * metadata.num_rows // max(unpacked, 1)
    yield from parquet.iter_batches(batch_size=max(1, min(BATCH_ROWS, rows)))


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
