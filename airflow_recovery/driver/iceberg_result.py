"""A result that is a snapshot of an Iceberg table: Spark writes its files, and pyiceberg, in the driver, commits them.

Spark needs no jar of Iceberg's. The catalog is that of an Airflow connection, whose properties a driver on the worker's
machine is given in a variable of its environment; elsewhere pyiceberg's own configuration has them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.iceberg_partitions import partition_of, why_not_written, with_partitions
from airflow_recovery.driver.paths import decoded, spark_path
from airflow_recovery.driver.readable_values import checked, unreadable_value
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import HoldsOther, PartitionMissing, RegionFailed, UserCodeError
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.spark_types import Kind, columns_of, iceberg_has, iceberg_takes, in_order_of_names
from airflow_recovery.results.tables import ICEBERG_TOKEN, ROUNDS, Tables, snapshot_token
from airflow_recovery.sinks.staged import unfit_lake_columns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LINEAGE, _ATTEMPT = "airflow-recovery.result", "airflow-recovery.number"
_PLAIN = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def driver_tables() -> Tables:
    """The Iceberg tables that this driver can ask."""

    def properties(catalog: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(os.environ.get(catalog_variable(catalog), "{}"))
        return found

    return Tables(properties, lambda location: {}, _opens_nothing)


def write_iceberg(
    spark: SparkSession, frame: DataFrame, commit: TableCommit, log: logging.Logger, tables: Tables
) -> PartitionManifest:
    """Put the rows of ``frame`` in place of all that the table's branch has, and return the snapshot as a manifest.

    A table that is not there is made by the same commit. The files lie in the table's own folder; those of a commit
    that failed are orphans there. Raises `UserCodeError` where the table can't take these rows (before any is written),
    `HoldsOther` where a later attempt has committed, and Spark's and pyiceberg's errors.
    """
    location = TableLocation.parse(commit.table)
    writing = _Writing(commit, location, tables, frame.schema)
    writing.check_types(None)
    transaction = writing.begin()
    metadata = transaction.table_metadata
    check_layout(metadata.spec(), metadata.schema(), commit.table)
    writing.check_columns(metadata)
    writing.folder, writing.spec = metadata.location, metadata.spec()
    folder = f"{metadata.location}/data/recovery-{uuid.uuid4().hex}"
    schema = frame.schema
    rows, partitions = checked(frame, schema), list[str]()
    if not metadata.spec().is_unpartitioned():
        rows, partitions = with_partitions(rows, metadata.spec(), metadata.schema())
    with _plain_timestamps(spark):
        try:
            # v1 moves what whole tasks have written, and nothing of a task that was tried again.
            (
                rows.write.mode("error")
                .option("mapreduce.fileoutputcommitter.algorithm.version", "1")
                .partitionBy(*partitions)
                .parquet(spark_path(folder))
            )
        except Exception as error:
            unreadable = unreadable_value(schema, error)
            if unreadable is None:
                raise
            raise UserCodeError(
                f"{commit.table}: {unreadable}. Nothing was committed, and no retry helps: change what the vertex "
                "returns"
            ) from None
    below = f"/{folder.rpartition('/')[2]}/"
    for path in spark.read.schema(schema).parquet(spark_path(folder)).inputFiles():
        name = decoded(path).rpartition(below)[2]
        writing.files[f"{folder}/{name}"] = partition_of(name, metadata.spec(), metadata.schema())
    snapshot, table_id = commit_once(tables, location, commit, writing.prepare, log)
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    manifest = PartitionManifest(
        result=commit.result,
        location=location.uri,
        objects=(ResultObject(str(snapshot.snapshot_id), int(summary.get("total-files-size", "0")), table_id),),
        rows=int(summary.get("added-records", "0")),
        schema=schema.json(),
        managed=False,
    )
    if commit.tag is not None:
        try:
            tables.keep(manifest, commit.tag)
        except Exception as error:
            log.warning("Snapshot %s has no tag that keeps it from being expired: %s", snapshot.snapshot_id, error)
    return manifest


def check_layout(spec: PartitionSpec, schema: Schema, table: str) -> None:
    """Raise `UserCodeError` for a table with partitions that are not written here."""
    why = why_not_written(spec, schema)
    if why is not None:
        raise UserCodeError(
            f"{table}: {why}. Nothing was written: let the vertex make another table, or files (result=BLOCKING)"
        )


def snapshot_files(manifest: PartitionManifest, tables: Tables) -> list[str]:
    """The URIs of the Parquet files that the snapshot of ``manifest`` is made of, whatever was committed since.

    Raises `PartitionMissing` where the table does not have it any more: the region task looks then.
    """
    lost = tables.why_lost(manifest)
    if lost is not None:
        raise PartitionMissing(lost.text)
    [registered] = manifest.objects
    table = tables.iceberg(TableLocation.parse(manifest.location))
    if table is None:
        raise PartitionMissing(f"{manifest.location} is gone: its catalog has no such table")
    planned = list(table.scan(snapshot_id=int(registered.path)).plan_files())
    if any(task.delete_files for task in planned):
        raise AssertionError(f"{manifest.location}: an attempt has committed files without any deletes")
    return [task.file.file_path for task in planned]


def snapshot_properties(commit: TableCommit) -> dict[str, str]:
    """What a snapshot says of the attempt that has committed it."""
    return {_LINEAGE: commit.lineage, _ATTEMPT: str(commit.attempt), ICEBERG_TOKEN: commit.token}


def commit_once(
    tables: Tables,
    location: TableLocation,
    commit: TableCommit,
    prepare: Callable[[Table | None], Callable[[], TableMetadata]],
    log: logging.Logger,
) -> tuple[Snapshot, str]:
    """The snapshot that this attempt has committed, once, whatever the catalog replied; and the table's id.

    ``prepare`` is given the table as it is now, `None` where there is none, and returns what sends one commit over it.
    Raises `HoldsOther` where a later attempt has committed, and what ``prepare`` and the catalog raise.
    """
    from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

    met: Exception | None = None
    for _ in range(ROUNDS):
        table = tables.iceberg(location)
        own = None if table is None else _committed(table, location, commit)
        if table is not None and own is not None:
            if met is not None:
                log.warning("%s said %s, and has committed all the same: found by the token.", commit.table, met)
            return own, str(table.metadata.table_uuid)
        if met is not None and not isinstance(met, (CommitFailedException, TableAlreadyExistsError)):
            raise met
        send = prepare(table)
        try:
            metadata = send()
        except Exception as error:  # which may leave open whether it was made
            met = error
        else:
            snapshot = metadata.snapshot_by_name(location.branch_name)
            assert snapshot is not None
            return snapshot, str(metadata.table_uuid)
    assert met is not None
    raise met


def _committed(table: Table, location: TableLocation, commit: TableCommit) -> Snapshot | None:
    """The snapshot of this attempt, if it has committed. Raises `HoldsOther` where a later one of its run has."""
    from pyiceberg.table.snapshots import ancestors_of

    head = table.metadata.snapshot_by_name(location.branch_name)
    for snapshot in ancestors_of(head, table.metadata):
        if snapshot_token(snapshot) == commit.token:
            return snapshot
        noted = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if noted.get(_LINEAGE) == commit.lineage and int(noted[_ATTEMPT]) >= commit.attempt:
            raise HoldsOther(commit.held(f"attempt {noted[_ATTEMPT]}"))
    return None


@dataclass
class _Writing:
    """What is written to a table, for its one commit.

    ``schema``: of the rows. ``files``: by their URIs, the values of the partition that each lies in. ``folder`` and
    ``spec`` are those of the table that they were written for.
    """

    commit: TableCommit
    location: TableLocation
    tables: Tables
    schema: StructType
    files: dict[str, list[Any]] = field(default_factory=dict)
    folder: str | None = None
    spec: PartitionSpec | None = None

    def begin(self, table: Table | None = None) -> Transaction:
        """A transaction on ``table`` or, where that is not given, on the table as it is now, or is to be made."""
        table = table or self.tables.iceberg(self.location)
        if table is None:
            return self.tables.new_iceberg(self.location, self._columns(_nullable(self.schema)), self.folder)
        # Pyiceberg would put the rows on top of what somebody else has committed meanwhile: it is to be read first.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        return table.transaction()

    def prepare(self, table: Table | None) -> Callable[[], TableMetadata]:
        """As `commit_once` asks it: the files in place of all that ``table`` has, or in one that is made for them."""
        transaction = self.begin(table)
        self._replace(transaction)
        return lambda: transaction.commit_transaction().metadata

    def _replace(self, transaction: Transaction) -> None:
        """Let ``transaction`` put the files in place of all that the branch has."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.table import TableProperties

        commit, metadata, branch = self.commit, transaction.table_metadata, self.location.branch_name
        if metadata.spec().fields != (self.spec.fields if self.spec is not None else None):
            raise RegionFailed(
                f"{commit.table}: expected the partitions that its files were written for, found others: somebody has "
                "changed them meanwhile. Nothing was committed; the next attempt writes them as they are"
            )
        if metadata.snapshot_by_name(branch) is not None:
            transaction.delete(AlwaysTrue(), branch=branch)
        if metadata.name_mapping() is None:  # Spark's files know nothing of the numbers of Iceberg's columns
            mapping = metadata.schema().name_mapping.model_dump_json()
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
        data_files = self._data_files(transaction)
        own = snapshot_properties(commit)
        with transaction.update_snapshot(snapshot_properties=own, branch=branch).fast_append() as append:
            for data_file in data_files:
                append.append_data_file(data_file)

    def _data_files(self, transaction: Transaction) -> list[DataFile]:
        """What a manifest says of each file. Pyiceberg reads it from the file, but for its partition.

        That it would guess from the least and the greatest value, which not every transform allows.
        """
        from pyiceberg.io.pyarrow import parquet_file_to_data_file
        from pyiceberg.manifest import DATA_FILE_TYPE
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
        from pyiceberg.typedef import Record
        from pyiceberg.utils.concurrent import ExecutorFactory

        metadata, io = transaction.table_metadata, transaction._table.io
        whole = {
            "partition_specs": [UNPARTITIONED_PARTITION_SPEC],
            "default_spec_id": UNPARTITIONED_PARTITION_SPEC.spec_id,
        }
        read = partial(parquet_file_to_data_file, io, metadata.model_copy(update=whole))
        at = [column.name for column in DATA_FILE_TYPE[2].fields].index("partition")
        try:
            data_files = list(ExecutorFactory.get_or_create().map(read, sorted(self.files)))
        except (ValueError, TypeError) as error:
            raise self._refused(error, "committed") from None
        for data_file in data_files:
            data_file[at] = Record(*self.files[data_file.file_path])
            data_file.spec_id = metadata.default_spec_id
        return data_files

    def check_columns(self, metadata: TableMetadata) -> None:
        """Raise `UserCodeError` where the table does not take these columns: other names, other types."""
        from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible

        from airflow_recovery.sinks.iceberg import kind_of

        self.check_types({column.name: kind_of(column.field_type) for column in metadata.schema().fields})
        try:
            columns = self._columns(self.schema)
            _check_pyarrow_schema_compatible(metadata.schema(), columns, format_version=metadata.format_version)
        except (ValueError, TypeError) as error:
            raise self._refused(error, "written") from None

    def check_types(self, columns: Mapping[str, Kind] | None) -> None:
        """Raise `UserCodeError` for a column whose values a table can't hold, or not in its own column."""
        found = columns_of(self.schema.json())
        unfit = unfit_lake_columns(found, columns, _takes, iceberg_has)
        if unfit:
            raise UserCodeError(
                f"{self.commit.table}: expected columns whose values the table holds as they are, found "
                f"{'; '.join(unfit)}. Nothing was written, and no retry helps: change the table, or what the vertex "
                "returns"
            )

    def _columns(self, schema: StructType) -> pa.Schema:
        """As Arrow has them. Raises `UserCodeError` for a type of Spark's that it does not have."""
        from pyspark.errors import PySparkException
        from pyspark.sql.pandas.types import to_arrow_schema

        # From Spark 4.2 on it asks for the zone of timestamps; before, it takes UTC by itself.
        zone: Any = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        try:
            return to_arrow_schema(schema, **zone)
        except PySparkException as error:
            raise UserCodeError(
                f"{self.commit.table}: can't hold these rows: {error}. Nothing was written, and no retry helps: change "
                "what the vertex returns"
            ) from None

    def _refused(self, error: Exception, done: str) -> UserCodeError:
        return UserCodeError(
            f"{self.commit.table}: refuses these rows: {error}. Nothing was {done}, and no retry helps: change the "
            "table, or what the vertex returns"
        )


def _takes(kind: Kind, target: Kind) -> bool:
    """As `iceberg_takes`. The members of a struct are found by their names, whatever their order."""
    return iceberg_takes(in_order_of_names(kind), in_order_of_names(target))


def _nullable(schema: StructType) -> StructType:
    """With nulls everywhere: whether a column of Spark's may have any, another attempt may see otherwise."""
    from pyspark.sql.types import StructType

    text = re.sub(r'"(nullable|containsNull|valueContainsNull)":false', r'"\1":true', schema.json())
    return StructType.fromJson(json.loads(text))


@contextmanager
def _plain_timestamps(spark: SparkSession) -> Iterator[None]:
    """Dates and timestamps as Iceberg has them, not as Spark 2 wrote them, whose calendar only Spark knows."""
    before = {name: spark.conf.get(name, None) for name in _PLAIN}
    for name, value in _PLAIN.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def _opens_nothing(location: str) -> Any:
    raise AssertionError(f"a driver asks Spark for {location}")
