"""days[month] --> kept[month] --> by_month: each month is a subtask, with an attempt and a result of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_recovery import BLOCKING, job, same_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

months = job("months")


@months.source(result=BLOCKING, parallelism=["jan", "feb", "mar"], params={"day": "{{ ds }}"})
def days(spark: SparkSession, context: Any, day: str) -> DataFrame:
    return spark.range(10 + int(day[-2:])).selectExpr(f"{context.subtask.index} AS month", "id")


@months.vertex(result=BLOCKING, parallelism=same_as("days"))
def kept(days: DataFrame) -> DataFrame:
    return days.where("id % 4 < 3")


@months.sink
def by_month(kept: DataFrame) -> DataFrame:
    return kept.groupBy("month").count()
