"""Writes three rows of a day: `DAY OUT HOW`, in place of that day's partition of OUT, or of all of the folder OUT."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

day, out, how, code = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.range(3).withColumn("code", lit(code))
if how == "partition":
    rows.withColumn("day", lit(day)).write.mode("overwrite").partitionBy("day").parquet(out)
else:
    rows.write.mode("overwrite").parquet(out)
spark.stop()
