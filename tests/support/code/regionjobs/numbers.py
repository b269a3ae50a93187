"""A small job with a source of files, a UDF that imports, an unstable vertex with two readers, and one that fails."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from airflow_recovery.job import FileSplits, RegionContext, files, job
from airflow_recovery.model.result_type import BLOCKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

numbers = job("numbers")


@numbers.source(splits=files("file:///in/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.schema("id long").csv(splits.paths)


@numbers.vertex(result=BLOCKING, spark_conf={"spark.sql.shuffle.partitions": "3", "spark.executor.memory": "3g"})
def doubled(raw: DataFrame, context: RegionContext) -> DataFrame:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from regionjobs import helpers

    @F.udf("long")
    def twice(number: int) -> int:
        return helpers.twice(number)

    seen = Observation()
    raw = raw.observe(seen, F.count(F.lit(1)).alias("rows"))
    context.accumulators.add("calls")
    context.accumulators.add_later("rows seen", lambda: seen.get["rows"])
    return raw.select(twice("id").alias("id"))


@numbers.vertex(params={"salt": 1})
def noisy(doubled: DataFrame, salt: int, context: RegionContext) -> DataFrame:
    from pyspark.sql import functions as F

    # Not F.rand(): its seed is drawn once, when the plan is made, so that equal partitions get equal numbers again.
    noise = F.udf(lambda number: number + random.random(), "double").asNondeterministic()
    return doubled.select("id", noise("id").alias("noise"), F.lit(f"{context.logical_date}/{salt}").alias("said"))


@numbers.sink
def left(noisy: DataFrame) -> DataFrame:
    return noisy


@numbers.sink
def right(noisy: DataFrame) -> DataFrame:
    return noisy.orderBy("id")


@numbers.source(params={"what": "", "ready": "", "go": ""})
def troubled(spark: SparkSession, what: str, ready: str, go: str) -> DataFrame:  # noqa: C901 - a branch a trouble
    from pathlib import Path

    from pyspark.sql import functions as F

    frame = spark.range(0, 8, 1, 2)
    if what == "exit":
        raise SystemExit(0)
    if what == "runtime":
        raise RuntimeError("the weather")
    if what == "type":
        return frame.nosuchmethod()  # type: ignore[operator]
    if what == "table":
        return spark.table("nosuchtable")
    if what == "secret":
        return spark.table("`PGPASSWORD=hunter2-of-the-driver`")
    if what == "say":
        raise RuntimeError(go)
    if what == "jar":
        given = {"url": "jdbc:nosuch:x", "driver": "org.nosuch.Driver", "dbtable": "t"}
        return spark.read.format("jdbc").options(**given).load()
    if what == "module":
        return frame.select(F.udf(lambda x: __import__("nosuchmodule").f(x), "long")("id").alias("id"))
    if what == "other Python":  # as its executors see a driver of another version
        spark.sparkContext.pythonVer, own = "3.9", spark.sparkContext.pythonVer
        try:
            return frame.select(F.udf(lambda x: x, "long")("id").alias("id")).coalesce(1)
        finally:
            spark.sparkContext.pythonVer = own
    if what == "column":
        return frame.select("nosuchcolumn")
    if what == "udf":
        return frame.select(F.udf(lambda x: 1 // (x - 3), "long")("id").alias("id"))
    if what == "nothing":
        return None
    if what in ("beat", "python"):

        def wait(number: int) -> int:
            while not Path(go).exists():
                Path(ready).touch()
                time.sleep(0.1)
            return number

        if what == "python":  # in the driver, out of Spark's sight
            wait(0)
        waiting: Any = F.udf(wait, "long")
        return frame.select(waiting("id").alias("id"))
    return frame


@numbers.sink
def checked(troubled: DataFrame) -> DataFrame:
    return troubled
