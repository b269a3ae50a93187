"""raw --> kept (cached) --> total, and raw --> brief (cached in memory) --> count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.job import FileSplits, files, job
from airflow_recovery.model.result_type import CACHED, CACHED_MEMORY_ONLY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

keeping = job("keeping", deterministic="verify")


@keeping.source(splits=files("file:///in/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.schema("id long").csv(splits.paths)


@keeping.vertex(result=CACHED)
def kept(raw: DataFrame) -> DataFrame:
    return raw.selectExpr("id", "id * id AS square")


@keeping.sink
def total(kept: DataFrame) -> DataFrame:
    return kept.selectExpr("sum(square) AS total")


@keeping.vertex(result=CACHED_MEMORY_ONLY)
def brief(raw: DataFrame) -> DataFrame:
    return raw.where("id < 5")


@keeping.sink
def count(brief: DataFrame) -> DataFrame:
    return brief.selectExpr("count(*) AS count")
