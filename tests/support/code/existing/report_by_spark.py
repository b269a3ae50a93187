from __future__ import annotations

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.read.parquet(sys.argv[1]).selectExpr("sum(cast(amount AS double)) AS total").write.parquet(sys.argv[2])
spark.stop()
