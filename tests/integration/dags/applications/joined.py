"""Copies a CSV file to Parquet; its rows are in another order, and in other files, where a file beside it says so."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = spark.read.option("header", True).csv(sys.argv[1])
if Path(sys.argv[1].removeprefix("file://")).with_name("other_order").exists():
    rows = rows.orderBy(rows.amount.desc()).repartition(2)
rows.write.parquet(sys.argv[2])
spark.stop()
