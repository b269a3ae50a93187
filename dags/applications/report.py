"""An existing Spark application: ``report.py --cleaned URI --out URI``."""

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--cleaned", required=True)
parser.add_argument("--out", required=True)
arguments = parser.parse_args()

spark = SparkSession.builder.getOrCreate()
spark.read.parquet(arguments.cleaned).groupBy("origin").count().write.parquet(arguments.out)
spark.stop()
