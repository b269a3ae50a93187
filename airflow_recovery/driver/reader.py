"""Reading exactly the files that a manifest names: never a listing, never ``_SUCCESS`` (docs/protocol.md#pre-check)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_recovery.driver.delta_result import read_delta
from airflow_recovery.driver.iceberg_result import driver_tables, snapshot_files
from airflow_recovery.driver.paths import as_decoded, decoded, spark_glob, spark_path
from airflow_recovery.driver.spark_schema import read_schema
from airflow_recovery.errors import ManifestInvalid
from airflow_recovery.locations import TableLocation, is_table
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.result_type import kept_by
from airflow_recovery.results.keeper import keeper_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


def read_manifest(spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
    """A lazy frame over the objects of ``manifest``, with its schema.

    One listing of the location is compared with the manifest and used where they agree (Spark freezes its file index
    here, so that a file that comes later is not read); else every file is named, which costs two or three requests
    each. A file that is gone fails, here or in the action: see `failure.is_missing_input`. Sizes and etags are not
    compared: that is `airflow_recovery.results.availability`. A result that a keeper has is read by the keeper, and a
    table's snapshot from the table.

    Raises `ManifestInvalid` for a manifest without files and without a schema, and `PartitionMissing` for a result that
    its keeper does not have any more, and for a snapshot that its table does not have.
    """
    keeper = keeper_of(manifest.location)
    if keeper is not None:
        return keeper.read(spark, manifest)
    if is_table(manifest.location):
        if not TableLocation.parse(manifest.location).is_iceberg:
            return read_delta(spark, manifest)
        return _read_files(spark, manifest, snapshot_files(manifest, driver_tables()))
    schema = _schema(manifest)
    if not manifest.objects:
        if schema is None:
            raise ManifestInvalid(
                f"result {manifest.result!r} at {manifest.location}: expected files or a schema, found neither: "
                "write at least one file, or produce the result by a vertex"
            )
        return spark.createDataFrame([], schema)
    if schema is not None:
        whole = _reader(spark, schema).parquet(*_folders(manifest))
        if {decoded(path) for path in whole.inputFiles()} == set(map(as_decoded, manifest.uris())):
            return whole
    return (
        _reader(spark, schema)
        .option("basePath", spark_path(manifest.location))  # else partition columns would be lost
        .parquet(*(spark_glob(uri) for uri in manifest.uris()))
    )


def _read_files(spark: SparkSession, manifest: PartitionManifest, uris: Sequence[str]) -> DataFrame:
    schema = _schema(manifest)
    if not uris and schema is not None:
        return spark.createDataFrame([], schema)
    return _reader(spark, schema).parquet(*map(spark_glob, uris))


def read_manifests(spark: SparkSession, manifests: Sequence[PartitionManifest]) -> DataFrame:
    """One lazy frame over what all subtasks of a vertex wrote: the rows of every manifest (see `read_manifest`).

    They are read at once, so that a thousand subtasks make no plan of a thousand parts. Raises `ManifestInvalid` where
    two of them have not the same columns; whether a column may be null is no difference.
    """
    first = manifests[0]
    if len(manifests) == 1:
        return read_manifest(spark, first)
    for manifest in manifests[1:]:
        if _columns(manifest) != _columns(first):
            raise ManifestInvalid(
                f"result {first.result!r}: expected all subtasks to have the same columns, found {_columns(first)} at "
                f"{first.location} and {_columns(manifest)} at {manifest.location}: give every subtask's rows the "
                "same names and types, and have what differs made again"
            )
    if any(kept_by(manifest.location) for manifest in manifests):
        return _union([read_manifest(spark, manifest) for manifest in manifests])
    full = [manifest for manifest in manifests if manifest.objects]
    schema = _schema(first)
    if not full:
        return read_manifest(spark, first)
    whole = _reader(spark, schema).parquet(*(folder for manifest in full for folder in _folders(manifest)))
    uris = [uri for manifest in full for uri in manifest.uris()]
    if {decoded(path) for path in whole.inputFiles()} == set(map(as_decoded, uris)):
        return whole
    return _reader(spark, schema).parquet(*map(spark_glob, uris))


def _union(frames: list[DataFrame]) -> DataFrame:
    """The union of ``frames``, made pair by pair: Spark's client can't send a plan that is a thousand deep."""
    while len(frames) > 1:
        pairs = [frames[at : at + 2] for at in range(0, len(frames), 2)]
        frames = [pair[0].unionByName(pair[1]) if len(pair) == 2 else pair[0] for pair in pairs]
    return frames[0]


def _folders(manifest: PartitionManifest) -> list[str]:
    """What is listed: the location; of a result that was committed in parts, their folders.

    These are told by their paths, which begin with folders that are no partition columns.
    """
    folders = {file.path.rpartition("/")[0] for file in manifest.objects}
    if not all(folder and "=" not in folder for folder in folders):
        return [spark_glob(manifest.location)]
    return [spark_glob(f"{manifest.location}/{folder}") for folder in sorted(folders)]


def _columns(manifest: PartitionManifest) -> str:
    schema = _schema(manifest)
    return "no schema" if schema is None else schema.simpleString()


def _schema(manifest: PartitionManifest) -> StructType | None:
    return None if manifest.schema is None else read_schema(manifest.schema)


def _reader(spark: SparkSession, schema: StructType | None) -> DataFrameReader:
    # A session that ignores missing files gave 3000 of 4000 rows, silently; the option of the read wins over it.
    reader = spark.read.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    return reader if schema is None else reader.schema(schema)
