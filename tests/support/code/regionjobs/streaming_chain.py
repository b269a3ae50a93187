"""A chain of three streaming regions: numbers from files as they come, a scorer, and a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.job import job
from airflow_recovery.model.result_type import BLOCKING
from airflow_recovery.streaming import APPROXIMATE, Streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

chain = job("chain")


@chain.source(result=APPROXIMATE, params={"folder": "", "column": "id"})
def raw(spark: SparkSession, folder: str, column: str) -> DataFrame:
    """One file of numbers a batch."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).option("latestFirst", "false").schema("id long")
    return lines.csv(folder).withColumnRenamed("id", column)


@chain.vertex(result=APPROXIMATE, params={"how": ""})
def scores(raw: DataFrame, how: str) -> DataFrame:
    from pyspark.sql import functions as F

    if how == "batch":
        return raw.sparkSession.range(3)
    return raw.select("id", (F.col("id") * 10).alias("score"))


@chain.sink(streaming=Streaming(stateful=True), params={"how": ""})
def board(scores: DataFrame, how: str) -> DataFrame:
    if how == "running":
        from pyspark.sql import functions as F

        return scores.groupBy((F.col("id") % 2).alias("parity")).agg(F.sum("score").alias("total"))
    return scores.dropDuplicates(["id"]) if how == "state" else scores


joined = job("joined")


@joined.source
def names(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(0, "even"), (1, "odd")], "parity long, name string")


@joined.vertex(result=BLOCKING)
def parities(names: DataFrame) -> DataFrame:
    """A side input of a streaming region: it is there as a whole when the region begins."""
    return names


@joined.source(result=APPROXIMATE)
def numbers(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().select("value")


@joined.sink
def matched(numbers: DataFrame, parities: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return numbers.join(parities, F.col("id") % 2 == parities.parity).select("id", "name")
