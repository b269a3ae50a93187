"""Read the rows that an attempt has prepared for its sink: the Parquet files of its manifest."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from airflow_recovery.errors import ConfigurationError, InputAltered
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.sinks.committer import CommitToken
from airflow_recovery.store.object_store import ObjectStore

BATCH_ROWS = 65_536


class StagedRows:
    """The rows of one manifest. One file at a time is held in memory, as a whole.

    Raises `ConfigurationError` where pyarrow is not installed, and where the manifest has no Parquet file.
    """

    def __init__(self, manifest: PartitionManifest, open_location: Callable[[str], ObjectStore]) -> None:
        try:
            import pyarrow.parquet  # type: ignore[import-untyped]  # noqa: F401
        except ImportError as error:
            raise ConfigurationError(
                "Expected pyarrow in the worker's environment, to read what is to be committed, found none: install "
                "airflow-recovery[sinks]."
            ) from error
        self._manifest = manifest
        self._store = open_location(manifest.location)
        self._files = [file for file in manifest.objects if file.path.endswith(".parquet")]
        if not self._files:
            raise ConfigurationError(
                f"Expected Parquet files of {manifest.result} in {manifest.location}, found none of "
                f"{len(manifest.objects)} objects: a result without columns can't be committed."
            )

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the first file; all files of one write have the same."""
        return _schema(self._open(0))

    def batches(self) -> Iterator[Any]:
        """Yield all rows, in the manifest's order, as `pyarrow.RecordBatch` of up to `BATCH_ROWS`.

        Raises `InputAltered`.
        """
        for at in range(len(self._files)):
            parquet = self._open(at)
            schema = _schema(parquet)
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS):
                yield batch.replace_schema_metadata(None).cast(schema)

    def _open(self, at: int) -> Any:
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(io.BytesIO(self._body(at)), coerce_int96_timestamp_unit="us")

    def _body(self, at: int) -> bytes:
        """The bytes of file ``at``. Raises `InputAltered` where size or etag are not those in the manifest."""
        file = self._files[at]
        base = self._store.base_uri
        uri = f"{self._manifest.location}/{file.path}"
        stored = self._store.get(uri.removeprefix(f"{base}/"), max_bytes=None)
        if (stored.info.size, stored.info.etag) != (file.size, file.etag):
            raise InputAltered(
                f"{uri}: expected {file.size} bytes with etag {file.etag}, as it was prepared, found "
                f"{stored.info.size} with {stored.info.etag}. Nothing was committed."
            )
        return stored.body


def with_key(schema: Any, batches: Iterator[Any], column: str, token: CommitToken) -> tuple[Any, Iterator[Any]]:
    """Schema and batches with a column more, which holds the lineage of ``token`` in each row.

    Raises `ConfigurationError` if the result has such a column by itself.
    """
    import pyarrow

    if column in schema.names:
        raise ConfigurationError(
            f"{token.text}: expected a result without the column {column!r}, which is the sink's run_column=, found it "
            "in the result as well: drop it in the sink's function, or name another column."
        )
    keyed = schema.append(pyarrow.field(column, pyarrow.string()))

    def with_keys() -> Iterator[Any]:
        for batch in batches:
            keys = pyarrow.array([token.lineage] * batch.num_rows, pyarrow.string())
            yield pyarrow.RecordBatch.from_arrays([*batch.columns, keys], schema=keyed)

    return keyed, with_keys()


def _schema(file: Any) -> Any:
    """The schema of a `pyarrow.parquet.ParquetFile`, in which Spark's timestamps have the time zone UTC.

    Spark writes moments as INT96, which Arrow reads without a zone; it writes times without a zone (NTZ) as INT64.
    """
    schema = file.schema_arrow.remove_metadata()
    stored = [file.schema.column(at).physical_type for at in range(len(file.schema))]
    if "INT96" not in stored:
        return schema
    leaves = iter(stored)
    for at, field in enumerate(schema):
        schema = schema.set(at, field.with_type(_in_utc(field.type, leaves)))
    return schema


def _in_utc(kind: Any, stored: Iterator[str]) -> Any:
    """``kind`` with every INT96, at any depth, as a timestamp in UTC. ``stored``: how its leaves are, in order."""
    import pyarrow

    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_in_utc(field.type, stored)) for field in kind])
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_in_utc(kind.value_type, stored)))
    if pyarrow.types.is_large_list(kind):
        return pyarrow.large_list(kind.value_field.with_type(_in_utc(kind.value_type, stored)))
    if pyarrow.types.is_map(kind):
        key = _in_utc(kind.key_type, stored)
        return pyarrow.map_(key, kind.item_field.with_type(_in_utc(kind.item_type, stored)))
    return pyarrow.timestamp("us", "UTC") if next(stored) == "INT96" else kind
