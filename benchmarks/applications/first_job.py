"""An existing application that does little: a session, and Spark's first jobs. ``first_job.py FOLDER``."""

import sys

from pyspark.sql import SparkSession, functions

session = SparkSession.builder.getOrCreate()
rows = session.range(1000).selectExpr("id", "id % 7 AS key")
rows.write.parquet(f"{sys.argv[1]}/in")
counted = session.read.parquet(f"{sys.argv[1]}/in").groupBy("key").agg(functions.count("*").alias("rows"))
counted.write.parquet(f"{sys.argv[1]}/out")
session.stop()
