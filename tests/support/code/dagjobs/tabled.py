"""raw -> cleaned (a snapshot of a Delta table) -> report (files), total (a Delta table of its own)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

tabled = job("tabled")


@tabled.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, schema="n long")


@tabled.vertex(table="delta+{{ params.lake }}/cleaned")
def cleaned(raw: DataFrame) -> DataFrame:
    return raw.where("n IS NOT NULL")


@tabled.sink
def report(cleaned: DataFrame) -> DataFrame:
    return cleaned.selectExpr("sum(n) AS total")


@tabled.sink(table="delta+{{ params.lake }}/total")
def total(cleaned: DataFrame) -> DataFrame:
    return cleaned.selectExpr("count(n) AS rows")
