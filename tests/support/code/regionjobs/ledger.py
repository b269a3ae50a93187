"""A sink that appends to a table of its own, and says that this may happen twice. Its first attempt then dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.job import RegionContext, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ledger = job("ledger")


@ledger.source
def three(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@ledger.sink(params={"path": ""}, allow_duplicates=True)
def booked(three: DataFrame, path: str, context: RegionContext) -> DataFrame:
    three.write.mode("append").parquet(path)
    if context.attempt == 1:
        raise RuntimeError("the worker is lost")
    return three
