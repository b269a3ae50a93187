"""Sources that read what nobody has declared, and what somebody has: for what a driver is seen to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.job import FileSplits, Version, files, job
from airflow_recovery.model.result_type import BLOCKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

reads = job("reads")


@reads.source(params={"folder": ""})
def undeclared(spark: SparkSession, folder: str) -> DataFrame:
    orders = spark.table("orders").join(spark.read.csv(folder, schema="id long"), "id", "left")
    return orders.where("id IN (SELECT id FROM returns)")


@reads.source(inputs={"orders": Version("{{ params.count }}")})
def stated(spark: SparkSession, orders: str) -> DataFrame:
    return spark.table("orders").selectExpr("id", f"'{orders}' AS count")


@reads.source(splits=files("file:///in/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.schema("id long").csv(splits.paths)


@reads.sink
def joined(undeclared: DataFrame, stated: DataFrame, raw: DataFrame) -> DataFrame:
    return undeclared.join(stated, "id").join(raw, "id")


@reads.source(result=BLOCKING, inputs={"orders": Version("{{ ti.xcom_pull('count') }}")})
def counted(spark: SparkSession, orders: str) -> DataFrame:
    return spark.range(int(orders))


@reads.sink
def total(counted: DataFrame) -> DataFrame:
    return counted
