"""A job of one region, whose driver waits before it writes; one that makes a table; one that loses what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job
from clusterjobs.gate import delete, is_there, leave, wait_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

gated = job("gated")


@gated.source(params={"gate": "{{ params.gate }}"})
def numbers(spark: SparkSession, gate: str) -> DataFrame:
    wait_at(gate, spark.sparkContext.applicationId)
    return spark.range(10)


@gated.sink
def kept(numbers: DataFrame) -> DataFrame:
    return numbers


#     counted -> kept          the same without a gate, and its result is a snapshot of a table
tabled = job("tabled")


@tabled.source
def counted(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@tabled.sink(name="kept", table="iceberg://lake/cluster.kept")
def kept_in_table(counted: DataFrame) -> DataFrame:
    return counted


#     made -> total             two regions; the first attempt of `total` loses what it was to read
lossy = job("lossy")


@lossy.source(result=BLOCKING)
def made(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@lossy.sink(params={"lost": "{{ params.lost }}"})
def total(made: DataFrame, lost: str) -> DataFrame:
    if not is_there(lost):
        for file in made.inputFiles():
            delete(file)
        leave(lost)
    return made.groupBy().sum("id")
