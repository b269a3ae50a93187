"""A job of one region, whose driver waits for a file before it writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

gated = job("gated")


@gated.source(params={"gate": "{{ params.gate }}"})
def numbers(spark: SparkSession, gate: str) -> DataFrame:
    Path(f"{gate}.{spark.sparkContext.applicationId}").touch()
    while not Path(gate).exists():
        time.sleep(0.1)
    return spark.range(10)


@gated.sink
def kept(numbers: DataFrame) -> DataFrame:
    return numbers


#     made -> total             two regions; the first attempt of `total` loses what it was to read
lossy = job("lossy")


@lossy.source(result=BLOCKING)
def made(spark: SparkSession) -> DataFrame:
    return spark.range(10)


@lossy.sink(params={"lost": "{{ params.lost }}"})
def total(made: DataFrame, lost: str) -> DataFrame:
    if not Path(lost).exists():
        import boto3

        for file in made.inputFiles():
            bucket, _, key = file.partition("://")[2].partition("/")
            boto3.client("s3").delete_object(Bucket=bucket, Key=key)
        Path(lost).touch()
    return made.groupBy().sum("id")
