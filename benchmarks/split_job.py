"""One source that reads many files, and one vertex that cleans their lines: row by row, as `split_commit` needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job
from airflow_recovery.job import FileSplits, files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

many_files = job("many_files")


@many_files.source(splits=files("file:///many/*.csv"), commit="split")
def lines(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.schema("id long, carrier string, distance double, air_time double").csv(splits.paths)


@many_files.vertex(commit="split", result=BLOCKING)
def speeds(lines: DataFrame) -> DataFrame:
    return lines.where("air_time > 0").selectExpr("id", "upper(carrier) AS carrier", "60 * distance / air_time AS mph")
