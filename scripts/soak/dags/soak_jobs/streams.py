"""events ~> table: two streaming regions at the same time. With ``reconnect="rewind"`` no record may be lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_recovery import job
from airflow_recovery.streaming import APPROXIMATE, Streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

streams = job("streams")
QUICK = Streaming(trigger_s=0.5)


@streams.source(result=APPROXIMATE(subpartitions=1))
def events(spark: SparkSession) -> DataFrame:
    lake = os.environ["SOAK_LAKE"].replace("s3://", "s3a://", 1)
    return spark.readStream.schema("number long").option("maxFilesPerTrigger", 2).csv(f"{lake}/numbers")


@streams.sink(streaming=QUICK)
def table(events: DataFrame) -> DataFrame:
    return events.selectExpr("number", "number * 2 AS doubled")
