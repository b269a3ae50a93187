"""A small job to crash, where none is given.

numbers --+--> evens ---+--> joined
          +--> triples -+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

diamond = job("diamond")


@diamond.source(result=BLOCKING)
def numbers(spark: SparkSession) -> DataFrame:
    """Thirty of them."""
    return spark.range(30)


@diamond.vertex(result=BLOCKING)
def evens(numbers: DataFrame) -> DataFrame:
    """Every second one."""
    return numbers.where("id % 2 = 0")


@diamond.vertex(result=BLOCKING)
def triples(numbers: DataFrame) -> DataFrame:
    """Three times each."""
    return numbers.selectExpr("id * 3 AS id")


@diamond.sink()
def joined(evens: DataFrame, triples: DataFrame) -> DataFrame:
    """What is in both."""
    return evens.join(triples, "id")
