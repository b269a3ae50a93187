"""A query of Structured Streaming over what is there: `SOURCE CHECKPOINT OUT HOW DIED`. It dies once, at its end.

HOW is "file sink", or the mode in which each batch is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

source, checkpoint, out, how, died = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
writer = spark.readStream.schema("n long").csv(source).writeStream


def write(batch: DataFrame, _: int) -> None:
    batch.write.mode(how).parquet(out)


writer = writer.format("parquet").option("path", out) if how == "file sink" else writer.foreachBatch(write)
if checkpoint:
    writer = writer.option("checkpointLocation", checkpoint)
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
if not Path(died).exists():
    Path(died).touch()
    sys.exit("killed before its task heard of its end")
