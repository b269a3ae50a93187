"""A job whose source commits split by split: small CSV files, a UDF that some lines are poison for, two results."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.job import FileSplits, RegionContext, files, job
from airflow_recovery.model.result_type import BLOCKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

splitwise = job("splitwise")


@splitwise.source
def names(spark: SparkSession) -> DataFrame:
    """A side input, which another region makes."""
    return spark.createDataFrame([(0, "even"), (1, "odd")], "parity long, name string")


@splitwise.vertex(result=BLOCKING)
def pinned(names: DataFrame) -> DataFrame:
    return names


@splitwise.source(
    splits=files("file:///in/*.csv"), commit="split", batch_bytes=100, params={"wait_for": "", "ready": "", "after": 0}
)
def lines(
    spark: SparkSession, splits: FileSplits, context: RegionContext, wait_for: str, ready: str, after: int
) -> DataFrame:
    """With ``wait_for``, the batch after so many calls waits for that file, and says so in ``ready``."""
    call = next(calls)  # of two threads, each has a number of its own
    context.accumulators.add("files", len(splits))
    if wait_for and call > after:
        while not Path(wait_for).exists():
            Path(ready).touch()
            time.sleep(0.05)
    return spark.read.schema("id long").csv(splits.paths)


calls = itertools.count(1)


@splitwise.vertex(commit="split", result=BLOCKING, deterministic="verify", params={"counts": False})
def parsed(lines: DataFrame, pinned: DataFrame, counts: bool) -> DataFrame:
    """A line 66666 raises, and for 99999 no heap is large enough. With ``counts`` it is none that may be split."""
    if counts:
        return lines.groupBy("id").count().join(pinned, lines.id == pinned.parity).select("id")
    from pyspark.sql import functions as F

    @F.udf("long")
    def checked(number: int) -> int:
        if number == 66666:
            raise ValueError("66666 is poison; db.password=hunter2-of-the-split")
        return number

    width = F.when(F.col("id") == 99999, 200_000_000).otherwise(0)
    fitting = lines.where(F.size(F.array_repeat(F.lit(1), width)) >= 0)
    return fitting.select(checked("id").alias("id")).withColumn("parity", F.col("id") % 2).join(pinned, "parity")


@splitwise.vertex(commit="split", result=BLOCKING)
def large(parsed: DataFrame) -> DataFrame:
    return parsed.where("id >= 10")
