"""A result that is a version of a Delta table: committed by Spark once an attempt, and read again as that version.

Spark needs Delta's jar and its settings. Delta keeps one version number for an application id: the id is the region's,
and the number the attempt's, so Delta leaves out what an older attempt, or the same one once more, would commit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import HoldsOther, JobDefinitionError, PartitionMissing
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.results.tables import MOST_COMMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IGNORE_MISSING_FILES = "spark.sql.files.ignoreMissingFiles"


def write_delta(spark: SparkSession, frame: DataFrame, commit: TableCommit, log: logging.Logger) -> PartitionManifest:
    """Put the rows of ``frame`` in place of all that the table has, and return the version that did it as a manifest.

    The table is made if need be. A commit whose reply was lost is found by its token. Raises `HoldsOther` where Delta
    has left the commit out, and Spark's errors.
    """
    location = TableLocation.parse(commit.table)
    path = spark_path(location.name)
    met: Exception | None = None
    try:
        (
            frame.write.format("delta")
            .mode("overwrite")
            .option("txnAppId", commit.lineage)
            .option("txnVersion", str(commit.attempt))
            .option("userMetadata", commit.token)
            .save(path)
        )
    except Exception as error:
        met = error
    version, metrics = _committed(spark, path, commit, met)
    if met is not None:
        log.warning("%s said %s, and has committed all the same: found by the token.", commit.table, met)
    rows, size = metrics.get("numOutputRows"), metrics.get("numOutputBytes", "0")
    return PartitionManifest(
        result=commit.result,
        location=location.uri,
        objects=(ResultObject(str(version), int(size), _id_of(spark, path)),),
        rows=None if rows is None else int(rows),
        schema=frame.schema.json(),
        managed=False,
    )


def read_delta(spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
    """A lazy frame over the version of ``manifest``, whatever was committed since.

    Raises `PartitionMissing` where the table does not have it any more, or is another one: the region task looks then.
    """
    if spark.conf.get(IGNORE_MISSING_FILES, "false") == "true":
        raise JobDefinitionError(
            f"{manifest.result!r} is a version of {manifest.location}: expected {IGNORE_MISSING_FILES}=false where it "
            "is read, found true: the rows of files that are gone would be left out, silently. Set it to false"
        )
    [registered] = manifest.objects
    path = spark_path(TableLocation.parse(manifest.location).name)
    try:
        found = _id_of(spark, path)
        frame = spark.read.format("delta").option("versionAsOf", registered.path).load(path)
        _ = frame.schema  # over Connect, nothing was asked before
    except Exception as error:
        if not _is_deltas(error):
            raise
        raise PartitionMissing(f"version {registered.path} of {manifest.location} can't be read: {error}") from error
    if found != registered.etag:
        raise PartitionMissing(f"{manifest.location} was dropped and made anew: it is table {found} now")
    return frame


def _committed(
    spark: SparkSession, path: str, commit: TableCommit, met: Exception | None
) -> tuple[int, dict[str, str]]:
    """The version that this attempt has committed, and its metrics.

    ``met``: what the write raised, which is raised where there is none. Without it, Delta has left the commit out.
    """
    try:
        commits = _described(spark, f"DESCRIBE HISTORY {_quoted(path)} LIMIT {MOST_COMMITS}")
    except Exception as error:
        raise met or error from None
    for made in commits:
        if made["userMetadata"] == commit.token:
            return int(made["version"]), dict(made["operationMetrics"] or {})
    raise met or HoldsOther(commit.held("that Delta has left it out, for one of the same or a later attempt"))


def _id_of(spark: SparkSession, path: str) -> str:
    [detail] = _described(spark, f"DESCRIBE DETAIL {_quoted(path)}")
    return str(detail["id"])


def _described(spark: SparkSession, statement: str) -> list[Any]:
    return list(spark.sql(statement).collect())


def _quoted(path: str) -> str:
    return "delta.`" + path.replace("`", "``") + "`"


def _is_deltas(error: Exception) -> bool:
    ask = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return str(ask() if ask is not None else "").startswith("DELTA_")
