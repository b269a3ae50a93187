"""Regions that commit split by split: an application of their own wherever the others run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

# raw -> kept    one region, committed split by split, result `kept`
#         |
#        best    a sink
orders = job("orders")


@orders.source(splits=files("s3://lake/*.csv"), commit="split")
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@orders.vertex(result=BLOCKING, commit="split")
def kept(raw: DataFrame) -> DataFrame:
    return raw


@orders.sink
def best(kept: DataFrame) -> DataFrame:
    return kept.limit(1)
