"""raw -> cleaned (a Delta table in the folder that raw reads)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

updated = job("updated")


@updated.source(splits=files("{{ params.lake }}/cleaned/*"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, schema="n long")


@updated.sink(table="delta+{{ params.lake }}/cleaned")
def cleaned(raw: DataFrame) -> DataFrame:
    return raw.where("n IS NOT NULL")
