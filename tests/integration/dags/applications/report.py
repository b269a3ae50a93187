from __future__ import annotations

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.read.parquet(sys.argv[1]).selectExpr("sum(amount) AS total").write.mode("overwrite").parquet(sys.argv[2])
spark.stop()
