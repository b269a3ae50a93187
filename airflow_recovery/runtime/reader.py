"""Reading exactly the files that a manifest names: never a listing, never ``_SUCCESS`` (PROTOCOL 5.1, SPARK.md 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_recovery.errors import ManifestInvalid
from airflow_recovery.runtime.paths import decoded, spark_glob, spark_path
from airflow_recovery.shuffle.location import comparable
from airflow_recovery.shuffle.manifest import PartitionManifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


def read_manifest(spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
    """A lazy frame over the objects of ``manifest``, with its schema.

    One listing of the location is compared with the manifest and used where they agree (Spark freezes its file index
    here, so that a file that comes later is not read); else every file is named, which costs two or three requests
    each. A file that is gone fails, here or in the action: see `failure.is_missing_input`. Sizes and etags are not
    compared: that is `airflow_recovery.shuffle.availability`.

    Raises `ManifestInvalid` for a manifest without files and without a schema.
    """
    schema = _schema(manifest)
    if not manifest.objects:
        if schema is None:
            raise ManifestInvalid(
                f"result {manifest.result!r} at {manifest.location}: expected files or a schema, found neither: "
                "write at least one file, or produce the result by a vertex"
            )
        return spark.createDataFrame([], schema)
    if schema is not None:
        whole = _reader(spark, schema).parquet(spark_glob(manifest.location))
        if {decoded(each) for each in whole.inputFiles()} == {comparable(each) for each in manifest.uris()}:
            return whole
    return (
        _reader(spark, schema)
        .option("basePath", spark_path(manifest.location))  # else partition columns would be lost
        .parquet(*(spark_glob(each) for each in manifest.uris()))
    )


def _schema(manifest: PartitionManifest) -> StructType | None:
    from pyspark.sql.types import StructType

    return None if manifest.schema is None else StructType.fromJson(json.loads(manifest.schema))


def _reader(spark: SparkSession, schema: StructType | None) -> DataFrameReader:
    # A session that ignores missing files gave 3000 of 4000 rows, silently; the option of the read wins over it.
    reader = spark.read.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
    return reader if schema is None else reader.schema(schema)
