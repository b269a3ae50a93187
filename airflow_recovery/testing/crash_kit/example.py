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
    """The numbers from 0 to 29, one a row."""
    return spark.range(30)


@diamond.vertex(result=BLOCKING)
def evens(numbers: DataFrame) -> DataFrame:
    """The even numbers among them."""
    return numbers.where("id % 2 = 0")


@diamond.vertex(result=BLOCKING)
def triples(numbers: DataFrame) -> DataFrame:
    """Every number, times three."""
    return numbers.selectExpr("id * 3 AS id")


@diamond.sink()
def joined(evens: DataFrame, triples: DataFrame) -> DataFrame:
    """The numbers that both inputs have."""
    return evens.join(triples, "id")
