"""One step of the pipeline, as somebody writes it who has heard of none of the orchestrators.

    application.py STEP --lake FOLDER --out FOLDER [--in NAME=FOLDER ...]

It says in the file BENCHMARK_LEDGER when it begins and how it ends. Where the file BENCHMARK_ORDER tells its step to
fail, it takes that file away, does what it says to what it reads (lose a result, or one file of it), and raises.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def flights(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    columns = ("carrier", "tailnum", "origin", "dest", "time_hour")
    table = spark.read.csv(f"{lake}/flights.csv", header=True, nullValue="NA")
    return table.select(*columns, F.col("arr_delay").cast("bigint").alias("arr_delay"))


def weather(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    table = spark.read.csv(f"{lake}/weather.csv", header=True, nullValue="NA")
    is_wet = F.max(F.col("precip").cast("double")) > 0
    return table.groupBy("origin", "time_hour").agg(F.when(is_wet, "wet").otherwise("dry").alias("weather"))


def planes(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    table = spark.read.csv(f"{lake}/planes.csv", header=True, nullValue="NA")
    return table.select("tailnum", F.when(F.col("seats").cast("int") < 100, "small").otherwise("large").alias("plane"))


def joined(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    known = read["flights"].join(read["weather"], ["origin", "time_hour"], "left")
    every = known.join(read["planes"], "tailnum", "left")
    # Not `fillna`, which asks for the columns at once: a declarative pipeline has no table yet.
    filled = [F.coalesce(name, F.lit("unknown")).alias(name) for name in ("weather", "plane")]
    return every.select("carrier", "origin", "dest", "arr_delay", *filled)


def totals(frame: DataFrame, *keys: str) -> DataFrame:
    """Sums of integers: two attempts agree row for row."""
    delay = F.sum("arr_delay").alias("delay")
    return frame.groupBy(*keys).agg(F.count(F.lit(1)).alias("flights"), delay).orderBy(*keys)


def by_carrier(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    return totals(read["joined"], "carrier")


def by_route(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    return totals(read["joined"], "origin", "dest")


def by_weather(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    return totals(read["joined"], "weather", "plane")


def report(spark: SparkSession, lake: str, read: Mapping[str, DataFrame]) -> DataFrame:
    routes = read["by_route"].select("origin", "dest", F.col("flights").alias("of_route"))
    kinds = read["by_weather"].select("weather", "plane", F.col("flights").alias("of_kind"))
    here = totals(read["joined"], "origin", "dest", "weather", "plane")
    return here.join(routes, ["origin", "dest"]).join(kinds, ["weather", "plane"])


VERTICES: dict[str, Callable[[SparkSession, str, Mapping[str, DataFrame]], DataFrame]] = {
    vertex.__name__: vertex for vertex in (flights, weather, planes, joined, by_carrier, by_route, by_weather, report)
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=VERTICES)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--in", dest="inputs", action="append", default=[])
    given = parser.parse_args()
    inputs = dict(pair.split("=", 1) for pair in given.inputs)
    note(given.step, "begun", given.out)
    obey(given.step, inputs, given.out)
    spark = SparkSession.builder.getOrCreate()
    frames = {name: spark.read.parquet(folder) for name, folder in inputs.items()}
    VERTICES[given.step](spark, given.lake, frames).write.mode("overwrite").parquet(given.out)
    note(given.step, "ended", given.out)
    spark.stop()


def note(step: str, what: str, out: str) -> None:
    """One line of the ledger."""
    line = {"step": step, "what": what, "at": time.time(), "pid": os.getpid(), "out": out}
    with open(os.environ["BENCHMARK_LEDGER"], "a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(line) + "\n")


def ended(step: str) -> int:
    """How often the ledger says so."""
    return Path(os.environ["BENCHMARK_LEDGER"]).read_text().count(f'"step": "{step}", "what": "ended"')


def obey(step: str, inputs: Mapping[str, str], out: str) -> None:
    """Fail where this step is told to."""
    order = Path(os.environ["BENCHMARK_ORDER"])
    if not order.exists():
        return
    told = json.loads(order.read_text())
    if told["step"] != step:
        return
    order.unlink()
    deadline = time.time() + 60
    while ended("by_carrier") < ended("by_weather") and time.time() < deadline:
        time.sleep(0.1)  # until all others have read what is about to be lost
    if told["lose"]:
        lost = Path(inputs[told["lose"]].removeprefix("file://"))
        if told["one_file"]:
            next(iter(sorted(lost.glob("part-*")))).unlink()
        else:
            shutil.rmtree(lost)
    note(step, "failed", out)
    raise RuntimeError("this step was told to fail")


if __name__ == "__main__":
    main()
