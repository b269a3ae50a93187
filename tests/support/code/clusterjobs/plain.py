"""A job of one region that needs nothing but Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

plain = job("plain")


@plain.source
def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@plain.sink
def kept(numbers: DataFrame) -> DataFrame:
    return numbers
