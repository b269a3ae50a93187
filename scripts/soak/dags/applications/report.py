"""An existing Spark application: ``report.py CLEANED OUT``."""

import sys

from pyspark.sql import SparkSession

cleaned, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.read.parquet(cleaned).selectExpr("count(*) AS rows", "sum(number) AS total").write.parquet(out)
spark.stop()
