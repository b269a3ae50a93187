"""A chain of steps that each take a given time inside a Spark task, and the same steps without recovery.

The time is waited, not computed: what else runs on the machine, and how many cores it has, changes no step's work.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORK_S = float(os.environ.get("BENCHMARK_WORK_S", "30"))
LONG_WORK_S = 9 * WORK_S
STEPS = ("step_1", "step_2", "step_3", "step_4")

slow = job("slow")
single = job("single")
long = job("long")


def work(frame: DataFrame, seconds: float = WORK_S) -> DataFrame:
    """The one row of ``frame``, after the time."""
    return frame.selectExpr("id + 1 AS id", f"reflect('java.lang.Thread', 'sleep', {int(1000 * seconds)}L) AS slept")


def fail_once() -> None:
    """Where a test has left the file ``fail``: take it away, remove the folders that it names, and fail."""
    order = Path(os.environ["BENCHMARK_FAILURES"]) / "fail"
    if order.exists():
        folders = order.read_text().split()
        order.unlink()
        for folder in folders:
            shutil.rmtree(folder)
        raise RuntimeError("this step was told to fail")


@slow.source(result=BLOCKING)
def step_1(spark: SparkSession) -> DataFrame:
    return work(spark.range(1))


@slow.vertex(result=BLOCKING)
def step_2(step_1: DataFrame) -> DataFrame:
    return work(step_1)


@slow.vertex(result=BLOCKING)
def step_3(step_2: DataFrame) -> DataFrame:
    return work(step_2)


@slow.sink
def step_4(step_3: DataFrame) -> DataFrame:
    fail_once()
    return work(step_3)


@single.source
def one_row(spark: SparkSession) -> DataFrame:
    return spark.range(1)


@single.sink
def only_step(one_row: DataFrame) -> DataFrame:
    """With its source it is the one region of its job."""
    return work(one_row)


@long.source
def one_long_row(spark: SparkSession) -> DataFrame:
    return spark.range(1)


@long.sink
def long_step(one_long_row: DataFrame) -> DataFrame:
    """As `only_step`, with more work."""
    return work(one_long_row, LONG_WORK_S)


def run_plain(spark: SparkSession, step: str, output: str) -> None:
    """One step as somebody writes it who has never heard of this project. ``output`` is a local folder."""
    functions: dict[str, Callable[..., DataFrame]] = {
        "step_1": step_1,
        "step_2": step_2,
        "step_3": step_3,
        "step_4": step_4,
    }
    before = STEPS.index(step) - 1
    frame = functions[step](spark if before < 0 else spark.read.parquet(f"{output}/{STEPS[before]}"))
    frame.write.mode("overwrite").parquet(f"{output}/{step}")
