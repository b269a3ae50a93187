"""Read the rows that an attempt has prepared for its sink: the Parquet files of its manifest."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from airflow_recovery.errors import ConfigurationError, InputAltered, SinkRefused
from airflow_recovery.model import spark_types
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.spark_types import Kind, sql_name
from airflow_recovery.sinks.committer import CommitToken
from airflow_recovery.store.object_store import ObjectStore

BATCH_ROWS = 65_536
_DAY_US = 86_400_000_000
_YEARS_1_TO_9999 = (-719_162, 2_932_896)
"""The dates that all clients can read, in days since 1970-01-01."""
_CALENDARS_AGREE = {"date": -141_427, "timestamp": -25_567}
"""From which day on a file has the same dates and moments in each of Spark's calendars: 1582-10-15, 1900-01-01."""


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
                f"{len(manifest.objects)} objects: a result without columns can't be committed.",
                code="result-without-columns",
                result=manifest.result,
            )

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of the first file. Another file must have the same columns."""
        return self._first[0]

    @property
    def kinds(self) -> dict[str, Kind]:
        """The columns of the first file with Spark's types; of a file that Spark has not written, Arrow's."""
        return self._first[1]

    @cached_property
    def _first(self) -> tuple[Any, dict[str, Kind]]:
        parquet = self._open(0)
        return _schema(parquet), _kinds(parquet)

    def batches(self) -> Iterator[Any]:
        """Yield all rows, in the manifest's order, as `pyarrow.RecordBatch` of up to `BATCH_ROWS`.

        Raises `InputAltered`, and `SinkRefused` for a file with other columns than the first one, and for a value that
        no target holds.
        """
        import pyarrow

        for at, file in enumerate(self._files):
            parquet = self._open(at)
            kinds = _kinds(parquet)
            if [*kinds.items()] != [*self.kinds.items()]:
                raise SinkRefused(
                    f"{self._manifest.result}: expected the same columns in all files of {self._manifest.location}, "
                    f"found {_listed(self.kinds)} in {self._files[0].path} and {_listed(kinds)} in {file.path}. "
                    "Nothing was committed, and no retry helps: write all files with the same columns, in the same "
                    "order, and clear the task."
                )
            schema = _schema(parquet)
            is_legacy = spark_types.is_legacy(parquet.schema_arrow.metadata or {})
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS):
                columns = [self._checked(*column, is_legacy) for column in zip(schema, batch.columns, strict=True)]
                yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)

    def _checked(self, field: Any, column: Any, is_legacy: bool) -> Any:
        """The column in the type of ``field``. Raises `SinkRefused` for a value that no target holds."""
        import pyarrow

        try:
            column = column.cast(field.type)
        except pyarrow.ArrowInvalid:
            why: str | None = f"is not a whole number of microseconds ({field.type})"
        else:
            why = _why_not(column, is_legacy)
        if why is None:
            return column
        raise SinkRefused(
            f"{self._manifest.result}: column {field.name} ({sql_name(self.kinds[field.name])}) has a value that "
            f"{why}. Nothing was committed, and no retry helps: change that value in the sink's function, and clear "
            "the task."
        )

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
                f"{stored.info.size} with {stored.info.etag}. Nothing was committed.",
                code="staged-file-altered",
            )
        return stored.body


def check_lake_columns(
    token: CommitToken,
    table: str,
    found: Mapping[str, Kind],
    columns: Mapping[str, Kind] | None,
    takes: Callable[[Kind, Kind], bool],
) -> None:
    """Raise `SinkRefused` if a column of ``found`` would be another value in the table, before anything is written.

    ``columns``: those of the table; `None`: the commit makes it. ``takes``: whether a column of the second type holds
    every value of the first one.
    """
    unfit = unfit_lake_columns(found, columns, takes)
    if unfit:
        raise unfit_columns(token, table, unfit)


def unfit_lake_columns(
    found: Mapping[str, Kind],
    columns: Mapping[str, Kind] | None,
    takes: Callable[[Kind, Kind], bool],
    has: Callable[[Kind], bool] = spark_types.lake_has,
) -> list[str]:
    """The columns of ``found`` that would be other values in a lake table, each with what to do.

    The arguments are those of `check_lake_columns`. ``has``: whether a table that the commit makes has such a type.
    """
    twice = spark_types.same_but_for_case([*found])
    if twice:
        return [f"the columns {' and '.join(twice)}, whose names differ by case alone: rename one"]
    folded = {name.lower(): name for name in columns or ()}
    unfit = []
    for name, kind in found.items():
        mine = f"column {name} ({sql_name(kind)})"
        if columns is None:
            if not has(kind):
                unfit.append(f"{mine}: such a table has no type for it: {cure(kind)}")
        elif name not in columns:
            other = folded.get(name.lower())
            unfit.append(f"{mine}: the table has no such column" + (f", but {other}" if other is not None else ""))
        elif not takes(kind, columns[name]):
            unfit.append(f"{mine} into {sql_name(columns[name])}: a value could become another one: {cure(kind)}")
    return unfit


def cure(kind: Kind) -> str:
    """What to do with a column whose type a target does not have, as the end of a sentence."""
    if any(map(spark_types.is_interval, spark_types.leaves(kind))):
        return "make a number of one unit of it, such as seconds or months, or a string"
    if isinstance(kind, tuple) or kind == "variant":
        return "make a string of it with to_json(), or change the table's column"
    return "cast it to the type of the table's column, or change that column"


def unfit_columns(token: CommitToken, table: str, unfit: Sequence[str]) -> SinkRefused:
    """The error for columns that a table can't hold; ``unfit``: each of them, and what to do."""
    return SinkRefused(
        f"{token.text}: expected columns whose values {table} holds as they are, found {'; '.join(unfit)}. Nothing was "
        "committed, and no retry helps: change the sink's function or the table, and clear the task.",
        code="columns-not-held",
    )


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
    for at, field in enumerate(schema):
        schema = schema.set(at, field.with_type(_in_microseconds(field.type)))
    stored = [file.schema.column(at).physical_type for at in range(len(file.schema))]
    if "INT96" not in stored:
        return schema
    leaves = iter(stored)
    for at, field in enumerate(schema):
        schema = schema.set(at, field.with_type(_in_utc(field.type, leaves)))
    return schema


def _in_microseconds(kind: Any) -> Any:
    """Timestamps and times of another unit, which no target has."""
    import pyarrow

    if pyarrow.types.is_timestamp(kind):
        return pyarrow.timestamp("us", kind.tz)
    return pyarrow.time64("us") if pyarrow.types.is_time(kind) else kind


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


def _kinds(file: Any) -> dict[str, Kind]:
    """The columns of a `pyarrow.parquet.ParquetFile`, by the schema that Spark has put into its footer."""
    footer = (file.schema_arrow.metadata or {}).get(spark_types.FOOTER)
    given = {} if footer is None else spark_types.columns_of(footer.decode())
    schema = _schema(file)
    return {field.name: given.get(field.name, _arrow_kind(field.type)) for field in schema}


def _arrow_kind(kind: Any) -> Kind:
    """Spark's type for a type of Arrow; of one that Spark does not have, Arrow's name."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(kind):
        return _arrow_kind(kind.value_type)
    if types.is_struct(kind):
        return "struct", tuple((field.name, _arrow_kind(field.type)) for field in kind)
    if types.is_map(kind):
        return "map", _arrow_kind(kind.key_type), _arrow_kind(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return "array", _arrow_kind(kind.value_type)
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if types.is_time(kind):
        return "time"
    names = {
        "bool": "boolean", "int8": "byte", "int16": "short", "int32": "integer", "int64": "long", "float": "float",
        "double": "double", "string": "string", "large_string": "string", "binary": "binary", "large_binary": "binary",
        "date32[day]": "date", "null": "void",
    }  # fmt: skip
    return names.get(str(kind), str(kind))


def _listed(kinds: Mapping[str, Kind]) -> str:
    return ", ".join(f"{name} {sql_name(kind)}" for name, kind in kinds.items())


def _why_not(array: Any, is_legacy: bool) -> str | None:
    """What is wrong with a value of ``array``, or of what is in it, so that no target can hold it."""
    import pyarrow

    kind, types = array.type, pyarrow.types
    if types.is_dictionary(kind):
        return _why_not(array.dictionary, is_legacy)
    if types.is_struct(kind):
        return next(filter(None, (_why_not(member, is_legacy) for member in array.flatten())), None)
    if types.is_map(kind):
        return _why_not(array.keys, is_legacy) or _why_not(array.items, is_legacy)
    if types.is_list(kind) or types.is_large_list(kind):
        return _why_not(array.flatten(), is_legacy)
    if types.is_string(kind) or types.is_large_string(kind):
        try:
            array.validate(full=True)
        except pyarrow.ArrowInvalid:
            return "is not UTF-8"
    if types.is_date32(kind):
        return _why_no_date(array.cast(pyarrow.int32()), 1, "date", is_legacy)
    if types.is_timestamp(kind):
        return _why_no_date(array.cast(pyarrow.int64()), _DAY_US, "timestamp", is_legacy)
    return None


def _why_no_date(numbers: Any, of_a_day: int, name: str, is_legacy: bool) -> str | None:
    import pyarrow.compute  # type: ignore[import-untyped]

    found = pyarrow.compute.min_max(numbers)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None:
        return None
    first, last = _YEARS_1_TO_9999
    if least < first * of_a_day or most >= (last + 1) * of_a_day:
        return "is before year 1 or after year 9999"
    if is_legacy and least < _CALENDARS_AGREE[name] * of_a_day:
        return (
            "is older than the calendar of today, in a file of Spark's LEGACY calendar (write it with "
            "spark.sql.parquet.datetimeRebaseModeInWrite and spark.sql.parquet.int96RebaseModeInWrite set to CORRECTED)"
        )
    return None
