"""The rows of a result that a user's own application has written, read again to digest them.

Which files they are in, the names in its folder say:

    _delta_log                  the newest version of a Delta table, by delta-rs
    metadata/*.metadata.json    the current snapshot of an Iceberg table, by pyiceberg (`iceberg_table`)
    neither                     all files that Spark would read (`airflow_recovery.results.stored_files`);
                                a folder ``day=2013-01-01`` is a column, too, as text

A table of Hudi is `NotComparable`: its folder holds files that are no part of the table any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_recovery.locations import delta_rs_uri, is_misread
from airflow_recovery.model.location import is_hidden_from_spark
from airflow_recovery.model.spark_types import FOOTER
from airflow_recovery.results.stored_files import BATCH_ROWS, NotComparable, StoredFiles, format_of

if TYPE_CHECKING:
    from airflow_recovery.model.manifest import PartitionManifest, ResultObject
    from airflow_recovery.results.row_digest import RowDigest
    from airflow_recovery.store.object_store import ObjectStore

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAMED_BY_SPARK = re.compile(rf"^(part-(?:[rm]-)?[0-9]{{5,}})(?:-{_UUID})+(?=[-._]|$)", re.IGNORECASE)
"""The beginning of a file's name by Spark: a number, the UUID of the job, and perhaps one of a committer of S3A."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


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
        self._files = StoredFiles(manifest, store, limits.timeout_s)
        self._limits = limits
        self._delta_options = delta_options
        self._objects = [written for written in manifest.objects if is_data(written.path)]

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
        add_table = self._table()
        if add_table is not None:
            add_table(digest)
        else:
            for written in self._objects:
                self._add(digest, written)
        return digest

    def _table(self) -> Callable[[RowDigest], None] | None:
        """What reads the table that the files are."""
        names = {segment for written in self._manifest.objects for segment in written.path.split("/")[:-1]}
        if "_delta_log" in names:
            kind, add = "Delta", self._add_delta
        elif any(written.path.endswith(".metadata.json") for written in self._objects):
            kind, add = "Iceberg", self._add_iceberg
        else:
            return None
        if self._limits.in_order:
            raise NotComparable(f"the rows of a table of {kind} have no order")
        return add

    def _add(self, digest: RowDigest, written: ResultObject) -> None:
        kind, packing = format_of(written.path)
        digest.begin_file(stable_name(written.path))
        folders = dict(_folders(written.path))
        if kind not in ("parquet", "orc"):
            for batch in self._files.lines(written, kind, packing, as_text=self._limits.in_order):
                digest.add(batch, folders)
            return
        rows = self._files.columns(written, kind)
        schema = next(rows)
        if any(name.startswith("_hoodie_") for name in schema.names):
            raise NotComparable("which files belong to a table of Hudi is not known here")
        digest.add_schema(schema, folders)
        for batch in rows:
            digest.add(batch, folders)

    def _add_delta(self, digest: RowDigest) -> None:
        try:
            import deltalake
        except ImportError:
            raise NotComparable("deltalake (delta-rs) is not installed: install airflow-recovery[sinks]") from None
        location = self._manifest.location
        if is_misread(location):
            raise NotComparable(f"delta-rs would take another folder for {location}")
        table = deltalake.DeltaTable(delta_rs_uri(location), storage_options=self._delta_options() or None)
        dataset = table.to_pyarrow_dataset()
        # The type in Arrow has neither the length of a char nor a collation: the log of the table has Spark's JSON.
        digest.add_schema(dataset.schema.with_metadata({FOOTER: table.schema().to_json()}), {})
        for batch in dataset.to_batches(batch_size=BATCH_ROWS, batch_readahead=1, fragment_readahead=1):
            self._files.check_time()
            digest.add(batch, {})

    def _add_iceberg(self, digest: RowDigest) -> None:
        try:
            import pyiceberg  # noqa: F401
        except ImportError:
            raise NotComparable("pyiceberg is not installed: install airflow-recovery[iceberg]") from None
        from airflow_recovery.results.iceberg_table import IcebergTable

        table = IcebergTable(self._files)
        digest.add_schema(table.schema, {})
        for batch in table.rows():
            digest.add(batch, {})


def is_data(path: str) -> bool:
    """Whether Spark would read this object of a folder."""
    return not any(map(is_hidden_from_spark, path.split("/")))


def stable_name(path: str) -> str:
    """Return ``path`` without the UUID of the job that Spark puts into the name of a file.

    All other UUIDs are part of the data: a folder ``tenant=<uuid>`` is the value of a column.
    """
    folder, slash, name = path.rpartition("/")
    return folder + slash + _NAMED_BY_SPARK.sub(r"\1-*", name, count=1)


def _folders(path: str) -> Iterator[tuple[str, str | None]]:
    """The columns that are folders on the way to a file, with their values."""
    for segment in path.split("/")[:-1]:
        name, is_column, value = segment.partition("=")
        if is_column:
            yield _unescaped(name), None if value == _NULL_FOLDER else _unescaped(value)


def _unescaped(name: str) -> str:
    """A name of a folder as Spark reads it: each ``%`` and two digits are one character, never a byte of one."""
    return unquote(name, encoding="latin-1")
