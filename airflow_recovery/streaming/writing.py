"""What a Spark task writes of a region's batch: segments of a channel, or files of the last region.

Runs on executors, as a function for ``DataFrame.mapInArrow`` whose rows say what was written. A task is not told
whether Spark will try it again, so names are unique, and the record that names them decides what exists. A task that
fails deletes what it has written; what a killed one leaves is swept at the channel's end.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.spark_schema import read_schema
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import StoreError
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.store.schemes import know
from airflow_recovery.streaming.producing import WrittenSegment
from airflow_recovery.streaming.workers import provide_sdks

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

    from airflow_recovery.store.object_store import ObjectStore

SUB = "__airflow_recovery_subpartition"
"""The column that says where a row goes; it is not written."""
FLUSH_BYTES = 32 * 1024 * 1024
"""A task holds about so much at a time, and writes it as one object a subpartition."""
WRITTEN = "sub int, task int, key string, count long, bytes long"


class Body(str, Enum):
    """The format of an object: Arrow's stream format for segments, Parquet for outputs."""

    ARROW = "arrow"
    PARQUET = "parquet"


@dataclass(frozen=True)
class Target:
    """Objects go to ``<folder>/<name>/<...>`` of the store; ``name`` is what records call them by, with the rest.

    ``schema`` is Spark's, as JSON. ``subpartitions``: into how many parts rows are dealt where they don't say
    (`SUB`); 0 for files.
    """

    store: StoreSpec
    folder: str
    name: str
    schema: str
    body: Body
    subpartitions: int = 0
    is_keyed: bool = False


def write_batch(frame: DataFrame, target: Target, partition_by: tuple[str, ...] = ()) -> list[WrittenSegment]:
    """Write a batch; what was written, in no order. One Spark job.

    With ``partition_by``, equal values come to one subpartition. Rows of a task keep their order in each.
    """
    from pyspark.sql import functions as F

    if target.is_keyed:
        place = F.pmod(F.xxhash64(*partition_by), F.lit(target.subpartitions)).cast("int")
        frame = frame.withColumn(SUB, place)
    rows = frame.mapInArrow(task_of(target), WRITTEN).collect()
    return [WrittenSegment(row["sub"], row["task"], row["key"], row["count"], row["bytes"]) for row in rows]


def task_of(target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for ``DataFrame.mapInArrow``: it writes rows to ``target``, and yields a row for each object."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run_task(target, batches)

    return run


def run_task(target: Target, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One try of one Spark task: write ``batches``, and yield a row of `WRITTEN` for each object.

    Where that fails, it deletes what it has written, and raises.
    """
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    task = _Task(target, context.partitionId() if context is not None else 0)
    try:
        for batch in batches:
            task.add(batch)
        task.flush()
    except BaseException:
        task.undo()
        raise
    if task.written:
        columns = [pa.array(values) for values in zip(*task.written, strict=True)]
        types = [pa.int32(), pa.int32(), pa.string(), pa.int64(), pa.int64()]
        names = ["sub", "task", "key", "count", "bytes"]
        yield pa.RecordBatch.from_arrays(
            [column.cast(kind) for column, kind in zip(columns, types, strict=True)], names
        )


def empty_file(store: ObjectStore, target: Target) -> str:
    """Write a file without rows; the key by which records name it."""
    key = f"{target.name}/empty.parquet"
    store.put(f"{target.folder}/{key}", encoded(arrow_schema(target.schema).empty_table(), target.body))
    return key


class _Task:
    def __init__(self, target: Target, number: int) -> None:
        self.written: list[tuple[int, int, str, int, int]] = []
        self._target = target
        self._number = number
        self._store = shared_store(target.store)
        self._schema = arrow_schema(target.schema)
        self._token = uuid.uuid4().hex[:12]
        self._held: list[Any] = []
        self._size = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._size += batch.nbytes
        if self._size >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if not any(batch.num_rows for batch in self._held):
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._size = [], 0
        for sub, rows in self._dealt(table):
            if rows.num_rows:
                self._put(sub, rows)

    def _dealt(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        count = self._target.subpartitions
        if self._target.is_keyed:
            places, rows = table[SUB], table.drop_columns([SUB])
            for sub in sorted(pc.unique(places).to_pylist()):
                yield sub, rows.filter(pc.equal(places, sub))
        elif count == 0:
            yield 0, table
        else:
            # Slices, so that no row is copied; each task begins with another one, so that few rows go everywhere.
            share = -(-table.num_rows // count)
            for turn in range(count):
                yield (self._number + turn) % count, table.slice(turn * share, share)

    def _put(self, sub: int, rows: pa.Table) -> None:
        target = self._target
        name = f"{self._number:05d}-{self._token}-{len(self.written):04d}"
        key = f"{target.name}/{name}" + (".parquet" if target.body is Body.PARQUET else f"/{sub}")
        body = encoded(as_schema(rows, self._schema), target.body)
        self.written.append((sub, self._number, key, rows.num_rows, len(body)))
        self._store.put(f"{target.folder}/{key}", body)

    def undo(self) -> None:
        with suppress(StoreError):
            self._store.delete([f"{self._target.folder}/{key}" for _, _, key, _, _ in self.written])


def arrow_schema(schema: str) -> pa.Schema:
    """As Spark takes it from a Python data source: times are UTC, whatever the session's time zone is."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(read_schema(schema), timezone="UTC")


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows, cast to the types of ``schema``."""
    import pyarrow as pa

    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def encoded(table: pa.Table, body: Body) -> bytes:
    """``table`` in the format of ``body``."""
    import pyarrow as pa

    out = io.BytesIO()
    if body is Body.PARQUET:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        pq.write_table(table, out)
    else:
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    return out.getvalue()


@lru_cache(maxsize=8)
def shared_store(spec: StoreSpec) -> ObjectStore:
    """One client a process: a new one for each task costs more than its requests."""
    know(spec)
    provide_sdks()
    return open_spec_store(spec)
