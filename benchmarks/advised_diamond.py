"""A diamond with a side branch, cut where a variable says; the end of the diamond can fail.

load --+--> left ---+--> joined
       +--> right --+
       +--> side
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import job
from benchmarks.advised_chain import cut, failing_once, work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

diamond = job("diamond", packages=["benchmarks"])


@diamond.source(result=cut("load"))
def load(spark: SparkSession) -> DataFrame:
    return work(spark.range(1))


@diamond.vertex(result=cut("left"))
def left(load: DataFrame) -> DataFrame:
    return work(load)


@diamond.vertex(result=cut("right"))
def right(load: DataFrame) -> DataFrame:
    return work(load)


@diamond.sink
def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return failing_once(work(left.join(right, "id")))


@diamond.sink
def side(load: DataFrame) -> DataFrame:
    return work(load)
