"""raw -> cleaned (a snapshot of an Iceberg table) -> report (files)."""

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


@tabled.vertex(table="iceberg://lake/db.cleaned")
def cleaned(raw: DataFrame) -> DataFrame:
    return raw.where("n IS NOT NULL")


@tabled.sink
def report(cleaned: DataFrame) -> DataFrame:
    return cleaned.selectExpr("sum(n) AS total")
