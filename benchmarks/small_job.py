"""Two regions, one after the other: an inner one whose data nobody asks for, and a leaf whose files are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

small = job("small")


@small.source(result=BLOCKING)
def inner(spark: SparkSession) -> DataFrame:
    return spark.range(100)


@small.sink
def leaf(inner: DataFrame) -> DataFrame:
    return inner.selectExpr("id * 2 AS id")
