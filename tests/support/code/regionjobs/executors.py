"""A region whose executor is killed in the middle of a shuffle: once, or each time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_recovery.job import job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

executors = job("executors")


@executors.source(params={"flag": "", "always": False})
def shuffled(spark: SparkSession, flag: str, always: bool) -> DataFrame:
    from pyspark.sql import functions as F

    @F.udf("long")
    def kill_executor(number: int) -> int:
        import os
        import signal
        from pathlib import Path

        if number == 7 and (always or not Path(flag).exists()):
            Path(flag).touch()
            # A Python worker's parent is a daemon, whose parent is the executor's JVM.
            parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
            os.kill(int(parent), signal.SIGKILL)
        return number

    # The shuffle's files are the executor's: with it they are gone, and Spark makes them again.
    return spark.range(20).repartition(4, "id").select(kill_executor("id").alias("id"))


@executors.sink
def counted(shuffled: DataFrame) -> DataFrame:
    return shuffled
