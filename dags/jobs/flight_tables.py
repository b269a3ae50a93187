"""Delays by carrier: ``arrived`` is a snapshot of an Iceberg table, ``by_carrier`` a version of a Delta table.

::

    raw -> arrived (Iceberg) -> by_carrier (Delta) -> worst (files)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import files, job
from jobs.lake import FLIGHTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

flights = job("flight_tables")


@flights.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths, header=True, nullValue="NA", schema=FLIGHTS)


@flights.vertex(table="iceberg://lake/flights.arrived")
def arrived(raw: DataFrame) -> DataFrame:
    return raw.where("arr_delay IS NOT NULL").selectExpr("carrier", "flight", "CAST(arr_delay AS BIGINT) AS delay")


@flights.vertex(table="delta+{{ params.tables }}/by_carrier")
def by_carrier(arrived: DataFrame) -> DataFrame:
    return arrived.groupBy("carrier").sum("delay").toDF("carrier", "delay")


@flights.sink
def worst(by_carrier: DataFrame) -> DataFrame:
    return by_carrier.orderBy("delay", ascending=False).limit(1)
