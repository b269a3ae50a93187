"""raw ~ kept (CACHED) --> total."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import CACHED, files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

keeping = job("keeping", deterministic="verify")


@keeping.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@keeping.vertex(result=CACHED)
def kept(raw: DataFrame) -> DataFrame:
    return raw


@keeping.sink
def total(kept: DataFrame) -> DataFrame:
    return kept
