"""Jobs for the crash kit's tests. Their functions are called by the tests with a real Spark only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, dates, job
from airflow_recovery.model.retention import Retention
from airflow_recovery.sinks import PostgresTable, ProbedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.job.handed_splits import DateSplits

relay = job("relay", retention=Retention.as_consumed())


@relay.source(result=BLOCKING)
def baton(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@relay.sink()
def goal(baton: DataFrame) -> DataFrame:
    return baton.selectExpr("id * 2 AS id")


ledgers = job("ledgers")


@ledgers.source(result=BLOCKING)
def entries(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@ledgers.sink(commit=PostgresTable(conn_id="none", table="replaced", mode="replace"))
def replaced(entries: DataFrame) -> DataFrame:
    return entries


def apply(committable: object, resources: object) -> str:
    raise AssertionError("a crash test commits to no real target")


@ledgers.sink(commit=ProbedSink(apply=apply, is_applied=apply, mode="append"))
def probed(entries: DataFrame) -> DataFrame:
    return entries


alone = job("alone")


@alone.source()
def letters(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("a",), ("b",), ("c",)], "letter string")


@alone.sink()
def counted(letters: DataFrame) -> DataFrame:
    return letters.groupBy("letter").count()


dailies = job("dailies", retention=Retention.as_consumed())


@dailies.source(splits=dates("2013-01-01", "2013-01-04"), commit="split", result=BLOCKING)
def days(spark: SparkSession, splits: DateSplits) -> DataFrame:
    return spark.createDataFrame([(day.isoformat(),) for day in splits.days], "day string")


@dailies.sink()
def months(days: DataFrame) -> DataFrame:
    return days.selectExpr("substring(day, 1, 7) AS month")
