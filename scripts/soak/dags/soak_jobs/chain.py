"""numbers --+--> thirds --+--> total       The 3 of ``numbers`` is what a deploy changes, forth and back.
+--> halves --+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

chain = job("chain")


@chain.source(result=BLOCKING, params={"day": "{{ ds }}"})
def numbers(spark: SparkSession, day: str) -> DataFrame:
    return spark.range(30 + int(day[-2:])).selectExpr("id", "id * 3 AS value")


@chain.vertex(result=BLOCKING)
def thirds(numbers: DataFrame) -> DataFrame:
    return numbers.where("id % 3 = 0")


@chain.vertex(result=BLOCKING)
def halves(numbers: DataFrame) -> DataFrame:
    return numbers.where("id % 2 = 0")


@chain.sink
def total(thirds: DataFrame, halves: DataFrame) -> DataFrame:
    return thirds.union(halves).selectExpr("count(*) AS rows", "sum(value) AS value")
