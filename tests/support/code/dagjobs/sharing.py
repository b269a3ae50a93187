"""A result that outlives its run, and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING_PERSISTENT, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

sharing = job("sharing")


@sharing.source(result=BLOCKING_PERSISTENT, version="1")
def airports(spark: SparkSession) -> DataFrame:
    return spark.range(3)


@sharing.sink(params={"day": "{{ ds }}"})
def daily(airports: DataFrame, day: str) -> DataFrame:
    return airports
