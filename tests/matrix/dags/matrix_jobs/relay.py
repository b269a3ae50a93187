"""The smallest job with something to lose, a function of its own on executors, and a template: numbers --> total."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job

relay = job("relay")


def twice(number: int) -> int:
    return 2 * number


@relay.source(result=BLOCKING)
def numbers(spark: Any) -> Any:
    from pyspark.sql import functions as F

    return spark.range(10).select(F.udf(twice, "long")("id").alias("number"))


@relay.sink(params={"day": "{{ ds }}"})
def total(numbers: Any, day: str) -> Any:
    from pyspark.sql import functions as F

    return numbers.agg(F.sum("number").alias("total")).withColumn("day", F.lit(day))
