"""Flights of 2013 in many small regions: two chained ones for each part of the year, and two sinks that read all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, files, job, same_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits, Job


def declare(parts: int) -> Job:
    """The job with the year in so many parts, whose files are in folders of the lake."""
    year = job(f"year_in_{parts}")
    keys = [f"{parts}-{number:02}" for number in range(parts)]
    year.source(splits=files("{{ params.lake }}/{{ subtask }}/*.csv"), parallelism=keys)(raw)
    year.vertex(result=BLOCKING, parallelism=same_as("raw"))(cleaned)
    year.vertex(result=BLOCKING, parallelism=same_as("cleaned"))(daily)
    year.sink(by_carrier)
    year.sink(by_route)
    return year


def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, header=True, nullValue="NA")


def cleaned(raw: DataFrame) -> DataFrame:
    return raw.selectExpr("carrier", "origin", "dest", "cast(arr_delay as bigint) as delay")


def daily(cleaned: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return cleaned.groupBy("carrier", "origin", "dest").agg(
        F.count(F.lit(1)).alias("flights"), F.sum("delay").alias("delay")
    )


def by_carrier(daily: DataFrame) -> DataFrame:
    return daily.groupBy("carrier").sum("flights", "delay")


def by_route(daily: DataFrame) -> DataFrame:
    return daily.groupBy("origin", "dest").sum("flights", "delay")


few = os.environ.get("BENCHMARK_PARTS")
WARM_UP, SUBMITTED, PER_RUN = (2, int(few), int(few)) if few else (2, 26, 52)
"""Parts of the year: of a run that does not count, of one by spark-submit, of one on a Spark of its own.

With few of them (``BENCHMARK_PARTS=6``) one sees whether the benchmark works, and measures nothing.
"""
warm_up, submitted, per_run = (declare(parts) for parts in (WARM_UP, SUBMITTED, PER_RUN))
