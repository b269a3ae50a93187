"""A chain of four steps of a given time each, cut where a variable says, whose last step can fail at its end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery import BLOCKING, PIPELINED, job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.model.result_type import ResultType

WORK_S = float(os.environ.get("BENCHMARK_WORK_S", "10"))
CUTS = frozenset(os.environ.get("BENCHMARK_CUTS", "").split())
"""The steps whose results are written."""

chain = job("chain")


def cut(step: str) -> ResultType:
    """Whether the result of ``step`` is written."""
    return BLOCKING if step in CUTS else PIPELINED


def work(frame: DataFrame) -> DataFrame:
    """The one row of ``frame``, after the time, which is waited inside a Spark task."""
    waited = f"reflect('java.lang.Thread', 'sleep', {int(1000 * WORK_S)}L)"
    return frame.selectExpr(f"id + coalesce(length({waited}), 0) AS id")  # else Spark would not wait for it


@chain.source(result=cut("step_1"))
def step_1(spark: SparkSession) -> DataFrame:
    return work(spark.range(1))


@chain.vertex(result=cut("step_2"))
def step_2(step_1: DataFrame) -> DataFrame:
    return work(step_1)


@chain.vertex(result=cut("step_3"))
def step_3(step_2: DataFrame) -> DataFrame:
    return work(step_2)


@chain.sink
def step_4(step_3: DataFrame) -> DataFrame:
    return failing_once(work(step_3))


def failing_once(done: DataFrame) -> DataFrame:
    """``done``, or what fails at its end where the file ``fail`` is, which is taken away."""
    order = Path(os.environ["BENCHMARK_FAILURES"]) / "fail"
    is_told = order.exists()
    order.unlink(missing_ok=True)
    return done.selectExpr("if(id >= 0, raise_error('this step was told to fail'), id) AS id") if is_told else done
