"""raw -> cleaned, kept: one region whose results are two tables, of two catalogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

named_twice = job("named_twice")


@named_twice.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, schema="n long")


@named_twice.sink(table="iceberg://lake/db.cleaned")
def cleaned(raw: DataFrame) -> DataFrame:
    return raw.where("n IS NOT NULL")


@named_twice.sink(table="iceberg://lake2/db.kept")
def kept(raw: DataFrame) -> DataFrame:
    return raw
