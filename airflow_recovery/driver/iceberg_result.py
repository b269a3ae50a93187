"""A result that is a snapshot of an Iceberg table: Spark writes its files, and pyiceberg, in the driver, commits them.

Spark needs no jar of Iceberg's. The catalog is that of an Airflow connection, whose properties a driver on the worker's
machine is given in a variable of its environment; elsewhere pyiceberg's own configuration has them.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.stores import catalog_variable
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import HoldsOther, PartitionMissing, UserCodeError
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results.tables import ICEBERG_TOKEN, ROUNDS, Tables, snapshot_token

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

_LINEAGE, _ATTEMPT = "airflow-recovery.result", "airflow-recovery.number"
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


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

    The files lie in the table's own folder; those of a commit that failed are orphans there. Raises `UserCodeError`
    where the table can't take these rows, `HoldsOther` where a later attempt has committed, and Spark's and pyiceberg's
    errors.
    """
    location = TableLocation.parse(commit.table)
    table = tables.iceberg(location)
    if not table.spec().is_unpartitioned():
        raise UserCodeError(
            f"{commit.table}: expected a table without partitions, found {table.spec()}: Spark's files hold rows of "
            "several. Let the vertex make a table without any, or files (result=BLOCKING)"
        )
    folder = f"{table.location()}/data/recovery-{uuid.uuid4().hex}"
    with _plain_timestamps(spark):
        # v1 moves what whole tasks have written, and nothing of a task that was tried again.
        (
            frame.write.mode("error")
            .option("mapreduce.fileoutputcommitter.algorithm.version", "1")
            .parquet(spark_path(folder))
        )
    schema = frame.schema
    names = [path.rpartition("/")[2] for path in spark.read.schema(schema).parquet(spark_path(folder)).inputFiles()]
    snapshot = _commit(table, location, [f"{folder}/{name}" for name in sorted(names)], commit, log, tables)
    summary = snapshot.summary.additional_properties
    manifest = PartitionManifest(
        result=commit.result,
        location=location.uri,
        objects=(
            ResultObject(
                str(snapshot.snapshot_id), int(summary.get("total-files-size", "0")), str(table.metadata.table_uuid)
            ),
        ),
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


def snapshot_files(manifest: PartitionManifest, tables: Tables) -> list[str]:
    """The URIs of the Parquet files that the snapshot of ``manifest`` is made of, whatever was committed since.

    Raises `PartitionMissing` where the table does not have it any more: the region task looks then.
    """
    lost = tables.why_lost(manifest)
    if lost is not None:
        raise PartitionMissing(lost.text)
    [registered] = manifest.objects
    table = tables.iceberg(TableLocation.parse(manifest.location))
    planned = list(table.scan(snapshot_id=int(registered.path)).plan_files())
    if any(task.delete_files for task in planned):
        raise AssertionError(f"{manifest.location}: an attempt has committed files without any deletes")
    return [task.file.file_path for task in planned]


def _commit(
    table: Table, location: TableLocation, files: list[str], commit: TableCommit, log: logging.Logger, tables: Tables
) -> Any:
    """The snapshot that this attempt has committed: once, whatever the catalog replied."""
    from pyiceberg.exceptions import CommitFailedException

    met: Exception | None = None
    for _ in range(ROUNDS):
        table = tables.iceberg(location)
        done = _committed(table, location, commit)
        if done is not None:
            if met is not None:
                log.warning("%s said %s, and has committed all the same: found by the token.", commit.table, met)
            return done
        if met is not None and not isinstance(met, CommitFailedException):
            raise met
        met = _replace(table, location, files, commit)
        if met is None:
            return table.metadata.snapshot_by_name(location.branch or "main")
    assert met is not None
    raise met


def _committed(table: Table, location: TableLocation, commit: TableCommit) -> Any | None:
    """The snapshot of this attempt, if it has committed. Raises `HoldsOther` where a later one of its run has."""
    from pyiceberg.table.snapshots import ancestors_of

    for snapshot in ancestors_of(table.metadata.snapshot_by_name(location.branch or "main"), table.metadata):
        if snapshot_token(snapshot) == commit.token:
            return snapshot
        found = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if found.get(_LINEAGE) == commit.lineage and int(found[_ATTEMPT]) >= commit.attempt:
            raise HoldsOther(commit.held(f"attempt {found[_ATTEMPT]}"))
    return None


def _replace(table: Table, location: TableLocation, files: list[str], commit: TableCommit) -> Exception | None:
    """One commit over what was read of the table. Returns the error that leaves open whether it was made."""
    from pyiceberg.expressions import AlwaysTrue

    # Pyiceberg would put the rows on top of what somebody else has committed meanwhile: it is to be read first.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    own = {_LINEAGE: commit.lineage, _ATTEMPT: str(commit.attempt), ICEBERG_TOKEN: commit.token}
    branch = location.branch or "main"
    transaction = table.transaction()
    try:
        if table.metadata.snapshot_by_name(branch) is not None:
            transaction.delete(AlwaysTrue(), branch=branch)
        transaction.add_files(files, snapshot_properties=own, check_duplicate_files=False, branch=branch)
    except (ValueError, TypeError) as error:
        raise UserCodeError(
            f"{commit.table}: refuses these rows: {error}. Nothing was committed, and no retry helps: change the "
            "table, or what the vertex returns"
        ) from None
    try:
        committed = transaction.commit_transaction()
    except Exception as error:
        return error
    table.metadata = committed.metadata
    return None


@contextmanager
def _plain_timestamps(spark: SparkSession) -> Iterator[None]:
    """Timestamps as Iceberg has them, not as Spark 2 wrote them."""
    before = spark.conf.get(_TIMESTAMPS, None)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_TIMESTAMPS)
        else:
            spark.conf.set(_TIMESTAMPS, before)


def _opens_nothing(location: str) -> Any:
    raise AssertionError(f"a driver asks Spark for {location}")
