"""Jobs whose functions are never called: their regions and their plans are what is tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, files, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

#     raw -> cleaned            one region, result `cleaned`
#      |       |
#    left    right             cleaned is read by both
#        \  /
#       joined                  a sink
#     aside                     a sink of its own
diamond = job("diamond")


@diamond.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@diamond.vertex(result=BLOCKING, params={"day": "{{ ds }}"})
def cleaned(raw: DataFrame, day: str) -> DataFrame:
    return raw


@diamond.vertex(result=BLOCKING)
def left(cleaned: DataFrame) -> DataFrame:
    return cleaned


@diamond.vertex(result=BLOCKING, spark_conf={"spark.executor.memory": "3g"})
def right(cleaned: DataFrame) -> DataFrame:
    return cleaned


@diamond.sink
def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.join(right)


@diamond.source(params={"n": 1})
def other(spark: SparkSession, n: int) -> DataFrame:
    return spark.range(n)


@diamond.sink
def aside(other: DataFrame) -> DataFrame:
    return other


# One region: `noisy` and `steady` have two readers each, `single` has one.
readers = job("readers")


@readers.source
def noisy(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@readers.vertex(deterministic="assume")
def steady(noisy: DataFrame) -> DataFrame:
    return noisy


@readers.vertex
def single(noisy: DataFrame) -> DataFrame:
    return noisy


@readers.sink
def first(steady: DataFrame, single: DataFrame) -> DataFrame:
    return steady


@readers.sink
def second(steady: DataFrame) -> DataFrame:
    return steady


# counted -> shown: only `counted` is read by another region.
verified = job("verified", deterministic="verify")


@verified.source(result=BLOCKING)
def counted(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@verified.sink
def shown(counted: DataFrame) -> DataFrame:
    return counted


misnamed = job("misnamed")


@misnamed.source(result=BLOCKING)
def source(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@misnamed.sink
def publish(source: DataFrame) -> DataFrame:
    return source
