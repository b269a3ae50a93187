"""Writing one result once, and saying exactly what was written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.background import in_background
from airflow_recovery.driver.digest import digest_metrics, digest_of
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.errors import ManifestInvalid
from airflow_recovery.model.location import is_hidden, listing_prefix
from airflow_recovery.model.manifest import PartitionManifest, ResultObject

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from airflow_recovery.store.object_store import ObjectStore

_PART = re.compile(r"part-(?P<task>\d+)-(?P<write>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})[-.]c(?P<file>\d+)\.")


def write_result(
    spark: SparkSession, frame: DataFrame, *, result: str, location: str, store: ObjectStore, is_digested: bool = False
) -> PartitionManifest:
    """Write ``frame`` to ``location``, which must not exist, and return its manifest.

    ``store`` is the one that holds ``location``; it, not Spark, lists what was written. Rows are observed in the same
    pass, and with ``is_digested`` a digest of them, which costs about a third more. Raises `ManifestInvalid` where what
    is there is not, or may not be, what this write wrote.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    # Over Connect the schema is a request, which need not come before the write.
    described = in_background(lambda: frame.schema, "schema")
    digested = digest_metrics(described()) if is_digested else []
    # The last node before the write: an observation before a shuffle counts a Spark stage that runs again twice.
    observation = Observation()
    (
        frame.observe(observation, F.count(F.lit(1)).alias("rows"), *digested)
        .write.mode("error")  # Connect knows this name of it only
        # v2 moves each file once. Its faults (files of a failed job) stay outside the manifest.
        .option("mapreduce.fileoutputcommitter.algorithm.version", "2")
        .parquet(spark_path(location))
    )
    observed = observation.get  # only after the write returned: after a failed one it lies or blocks
    schema = described()
    manifest = PartitionManifest(
        result=result, location=location, objects=listed_objects(store, location), rows=0, schema=schema.json()
    )
    if not observed:
        observed = _counted_again(spark, manifest, digested)
    rows = int(observed["rows"])
    manifest = replace(manifest, rows=rows, digest=digest_of(schema, rows, observed) if is_digested else None)
    check_one_write(manifest)
    if has_several_files_a_task(manifest.objects):
        # A retried task overwrites its dead try file by file; a try that wrote more files leaves the rest behind.
        counted = read_manifest(spark, manifest).count()
        if counted != rows:
            raise ManifestInvalid(
                f"result {result!r} at {location}: expected the {rows} rows that were observed, found {counted} in its "
                f"{len(manifest.objects)} files: a task that was tried twice left files of both tries. Run it again"
            )
    return manifest


def _counted_again(spark: SparkSession, manifest: PartitionManifest, digested: Sequence[Column]) -> dict[str, Any]:
    """What should have been observed, from the files: a Connect server that is busy for 0.1 s says nothing.

    Raises `ManifestInvalid` where the files alone can't tell what this write wrote.
    """
    from pyspark.sql import functions as F

    if not manifest.objects or has_several_files_a_task(manifest.objects):
        raise ManifestInvalid(
            f"result {manifest.result!r} at {manifest.location}: expected Spark to say how many rows it wrote, found "
            f"nothing said, and {len(manifest.objects)} files that need not be all or the only ones. Run it again"
        )
    (row,) = read_manifest(spark, manifest).agg(F.count(F.lit(1)).alias("rows"), *digested).collect()
    return dict(row.asDict())


def listed_objects(store: ObjectStore, location: str) -> tuple[ResultObject, ...]:
    """The data objects below ``location``, in key order: without names that begin with ``_`` or ``.``."""
    prefix = listing_prefix(store.base_uri, location)
    paths = ((info.key[len(prefix) :], info) for info in store.list(prefix))
    return tuple(ResultObject(path, info.size, info.etag) for path, info in paths if path and not is_hidden(path))


def check_one_write(manifest: PartitionManifest) -> None:
    """Raises `ManifestInvalid` unless every object is a part file and all carry the id of one write."""
    writes = set()
    for file in manifest.objects:
        part = _PART.match(file.path)
        if part is None:
            raise ManifestInvalid(
                f"result {manifest.result!r} at {manifest.location}: expected Spark's part files, found "
                f"{file.path!r}: nothing else may write below the location of an attempt"
            )
        writes.add(part["write"])
    if len(writes) > 1:
        raise ManifestInvalid(
            f"result {manifest.result!r} at {manifest.location}: expected the files of one write, found those of "
            f"{len(writes)} ({', '.join(sorted(writes))}): nothing else may write below the location of an attempt"
        )
    if not writes and manifest.rows:
        raise ManifestInvalid(
            f"result {manifest.result!r} at {manifest.location}: expected files with {manifest.rows} rows, found none: "
            "does the driver list the same store that Spark's executors write to?"
        )


def has_several_files_a_task(objects: Sequence[ResultObject]) -> bool:
    """True where a task wrote more than one file, or may have."""
    parts = [_PART.match(file.path) for file in objects]
    tasks = {part["task"] for part in parts if part is not None}
    return len(tasks) < len(objects) or any(int(part["file"]) > 0 for part in parts if part is not None)
