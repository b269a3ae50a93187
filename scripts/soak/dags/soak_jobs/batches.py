"""lines ~ numbers --> counted: files of the lake that are committed split by split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_recovery import BLOCKING, files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

batches = job("batches")


@batches.source(splits=files("{{ params.lake }}/numbers/*.csv"), commit="split", batch_bytes=60)
def lines(spark: SparkSession, splits: Any) -> DataFrame:
    return spark.read.csv(splits.paths, schema="number INT")


@batches.vertex(commit="split", result=BLOCKING)
def numbers(lines: DataFrame) -> DataFrame:
    return lines.where("number >= 5")


@batches.sink
def counted(numbers: DataFrame) -> DataFrame:
    """A split that was read twice, or never, is seen."""
    return numbers.groupBy("number").count()
