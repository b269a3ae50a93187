"""A stream of files, and a table of what is in them: two streaming regions and a channel, for `approximate_channel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import job
from airflow_recovery.streaming import APPROXIMATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_A_BATCH = 2

two_regions = job("two_regions")


def read_stream(spark: SparkSession, folder: str) -> DataFrame:
    """What both ways of running it read: some files a micro-batch."""
    files = spark.readStream.schema("id long, carrier string, distance double, air_time double")
    return files.option("maxFilesPerTrigger", FILES_A_BATCH).csv(folder)


def with_speed(rows: DataFrame) -> DataFrame:
    """What both ways of running it compute."""
    return rows.selectExpr("id", "upper(carrier) AS carrier", "60 * distance / air_time AS mph")


@two_regions.source(result=APPROXIMATE, params={"folder": ""})
def rows(spark: SparkSession, folder: str) -> DataFrame:
    """The lines of the files."""
    return read_stream(spark, folder)


@two_regions.sink
def speeds(rows: DataFrame) -> DataFrame:
    """One row a line."""
    return with_speed(rows)
