"""The rows of an Iceberg table whose files an application has written, as a reader of its current snapshot sees them.

pyiceberg says which files belong to the snapshot, and which type each column has. Rows are read here: its own readers
hold whole files in memory, and read a list of structs that is null as an empty one (0.12).

Imported where pyiceberg is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import index_by_id, index_name_by_id
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import DataScan
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StructType

from airflow_recovery.locations import comparable
from airflow_recovery.results.row_digest import NOT_SHOWN
from airflow_recovery.results.stored_files import NotComparable, StoredFiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from airflow_recovery.model.manifest import ResultObject

    Positions = NDArray[np.int64]

_METADATA = re.compile(r"metadata/v?(\d+)(-[^/]*|\.gz)?\.metadata\.json")
"""``v3.metadata.json`` of a table that has no catalog, ``00003-<random>.metadata.json`` of one that has."""
_IN_BYTES = re.compile(r"uuid|fixed\[\d+\]").fullmatch
_NONE = np.array([], np.int64)


class IcebergTable:
    """The table at the location of ``files``, as it was when these were listed. Raises `NotComparable`."""

    def __init__(self, files: StoredFiles) -> None:
        self._files = files
        location = files.manifest.location
        self._objects = {comparable(f"{location}/{written.path}"): written for written in files.manifest.objects}
        self._metadata = self._current_metadata()
        # What pyiceberg reads through: an object with `new_input`, whatever it is derived from.
        self._scan: Any = DataScan(self._metadata, self)  # type: ignore[arg-type,unused-ignore]
        self._columns = self._scan.projection().fields
        self._deleted: dict[str, dict[str, Positions]] = {}

    @cached_property
    def schema(self) -> Any:
        """The columns of the table, as a `pyarrow.Schema`. Its metadata has types that are bytes in Arrow."""
        columns = self._scan.projection()
        schema = schema_to_pyarrow(columns, include_field_ids=False)
        types = [str(member.field_type) for _, member in sorted(index_by_id(columns).items())]
        if not any(map(_IN_BYTES, types)):
            return schema
        return schema.with_metadata({NOT_SHOWN: json.dumps([kind for kind in types if _IN_BYTES(kind)])})

    def rows(self) -> Iterator[Any]:
        """Its rows, as record batches with these columns."""
        for task in self._scan.plan_files():
            yield from self._rows_of(task)

    def new_input(self, location: str) -> _File:
        """What pyiceberg reads a file with."""
        return _File(location, self._files, self._object_at(location))

    def _object_at(self, location: str) -> ResultObject:
        written = self._objects.get(comparable(location))
        if written is None:
            raise NotComparable(f"{location} of the table was not written to {self._files.manifest.location}")
        return written

    def _current_metadata(self) -> Any:
        """The metadata that all other metadata in the folder led to. Only the catalog knows of two such which counts.

        A log of metadata names the last hundred before it, so it is followed to the oldest that is there.
        """
        paths = [written.path for written in self._files.manifest.objects if written.path.endswith(".metadata.json")]
        versions = {path: _METADATA.fullmatch(path) for path in paths}
        unknown = ", ".join(sorted(path for path, match in versions.items() if match is None))
        if unknown:
            raise NotComparable(f"{unknown}: only a table of Iceberg at the root of the output is read")
        newest = max(versions, key=lambda path: (int(versions[path][1]), path))  # type: ignore[index]
        current = oldest = self._read_metadata(newest)
        missing = set(versions) - {newest}
        while missing:
            logged = [self._objects.get(comparable(entry.metadata_file)) for entry in oldest.metadata_log]
            before = [written.path for written in logged if written is not None]
            if missing.isdisjoint(before):
                raise NotComparable(f"{newest} and {min(missing)}: which of them is current only the catalog knows")
            missing.difference_update(before)
            if missing:
                oldest = self._read_metadata(before[0])
        return current

    def _read_metadata(self, path: str) -> Any:
        return FromInputFile.table_metadata(self.new_input(f"{self._files.manifest.location}/{path}"))  # type: ignore[arg-type,unused-ignore]

    def _rows_of(self, task: Any) -> Iterator[Any]:
        """The rows of one data file that are not deleted."""
        file, first = task.file, 0
        deleted = np.sort(
            np.concatenate([_NONE, *(self._deleted_in(deletes, file.file_path) for deletes in task.delete_files)])
        )
        rows = self._read(file)
        file_columns = self._columns_of(next(rows))
        for batch in rows:
            is_kept = np.ones(batch.num_rows, bool)
            start, end = np.searchsorted(deleted, (first, first + batch.num_rows))
            is_kept[deleted[start:end] - first] = False
            first += batch.num_rows
            if end > start:
                batch = batch.filter(pa.array(is_kept))
            columns = [self._column(column, batch, file_columns, file) for column in self._columns]
            yield pa.record_batch(columns, names=self.schema.names)

    def _read(self, file: Any) -> Iterator[Any]:
        kind = file.file_format.name.lower()
        if kind not in ("parquet", "orc"):
            raise NotComparable(f"{file.file_path} is a file of {kind}, which is not read")
        return self._files.columns(self._object_at(file.file_path), kind)

    def _deleted_in(self, deletes: Any, data_path: str) -> Positions:
        """The places of the rows in ``data_path`` that a file of deletes has."""
        if deletes.file_path not in self._deleted:
            positions: dict[str, list[Positions]] = {}
            rows = self._read(deletes)
            next(rows)
            for batch in rows:
                paths = batch["file_path"]
                for path in pc.unique(paths):
                    positions.setdefault(path.as_py(), []).append(batch.filter(pc.equal(paths, path))["pos"].to_numpy())
            self._deleted[deletes.file_path] = {path: np.concatenate(places) for path, places in positions.items()}
        return self._deleted[deletes.file_path].get(data_path, _NONE)

    def _columns_of(self, schema: Any) -> dict[int, Any]:
        """The columns of a file, by the id that they have in the table."""
        version = self._metadata.format_version
        mapping = self._metadata.name_mapping()
        columns = pyarrow_to_schema(schema, mapping, downcast_ns_timestamp_to_us=version <= 2, format_version=version)
        return {column.field_id: column for column in columns.fields}

    def _column(self, column: Any, batch: Any, file_columns: dict[int, Any], file: Any) -> Any:
        """``column`` of the table in ``batch``: by its id, of the type that it has today."""
        written = file_columns.get(column.field_id)
        if written is not None:
            values = batch.column(written.name)
            if written.field_type.is_primitive and written.field_type != column.field_type:
                return values.cast(self.schema.field(column.name).type)
            if _members(written) != _members(column):
                raise NotComparable(f"column {column.name} has other members in {file.file_path} than in the table")
            return values
        value = column.initial_default
        for at, partition in enumerate(self._metadata.specs()[file.spec_id].fields):
            if partition.source_id == column.field_id and isinstance(partition.transform, IdentityTransform):
                value = file.partition[at]
        return pa.repeat(pa.scalar(value, self.schema.field(column.name).type), batch.num_rows)


class _File:
    """What pyiceberg calls an input file: one that the application has written."""

    def __init__(self, location: str, files: StoredFiles, written: ResultObject) -> None:
        self.location = location
        self._files = files
        self._written = written

    def __len__(self) -> int:
        return self._written.size

    def open(self, seekable: bool = True) -> BinaryIO:
        return self._files.open(self._written)


def _members(column: Any) -> dict[int, tuple[str, str]]:
    """What is within a column, by its ids: how it is called, and its type where it has no members of its own."""
    whole = StructType(column)
    members = index_by_id(whole)
    names = index_name_by_id(whole)
    types = {at: str(member.field_type) if member.field_type.is_primitive else "" for at, member in members.items()}
    return {at: (names[at].partition(".")[2], types[at]) for at in members}
