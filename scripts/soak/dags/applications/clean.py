"""An existing Spark application: ``clean.py NUMBERS OUT``."""

import sys

from pyspark.sql import SparkSession

numbers, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.read.csv(numbers, schema="number INT").where("number % 2 = 0").write.parquet(out)
spark.stop()
