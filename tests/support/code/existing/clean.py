from __future__ import annotations

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.read.option("header", True).csv(sys.argv[1]).where("amount IS NOT NULL").write.parquet(sys.argv[2])
spark.stop()
