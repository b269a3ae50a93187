"""A job of one region that computes in Python on Spark's executors: what ``doctor --spark`` runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery import job as declare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 100
REGION = "doubled"

job = declare("airflow_recovery_doctor")


def twice(number: int) -> int:
    """On an executor: it is found there only where our code was sent to it, and where its Python can load it."""
    return 2 * number


@job.source
def numbers(spark: SparkSession) -> DataFrame:
    """The numbers from 0 to `ROWS`: nothing is read from outside."""
    return spark.range(ROWS)


@job.sink
def doubled(numbers: DataFrame) -> DataFrame:
    """Computed by a function of this module."""
    from pyspark.sql.functions import udf

    return numbers.select(udf(twice, "long")("id").alias("number"))
