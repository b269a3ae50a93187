"""entries --> booked: a sink that commits to PostgreSQL, rows of a run in place of those of its attempt before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job
from airflow_recovery.sinks import PostgresTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ledger = job("ledger")


@ledger.source(result=BLOCKING, params={"day": "{{ ds }}"})
def entries(spark: SparkSession, day: str) -> DataFrame:
    return spark.range(20 + int(day[-2:])).selectExpr("id", "id * 7 AS amount")


@ledger.sink(commit=PostgresTable(conn_id="warehouse", table="booked", mode="replace", run_column="run_key"))
def booked(entries: DataFrame) -> DataFrame:
    return entries.where("id % 5 = 0")
