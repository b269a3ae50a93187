"""An existing Spark application: ``clean.py --flights URI --out URI``. It knows nothing of Airflow or recovery."""

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--flights", required=True)
parser.add_argument("--out", required=True)
arguments = parser.parse_args()

spark = SparkSession.builder.getOrCreate()
flights = spark.read.csv(arguments.flights, header=True, nullValue="NA")
flights.where("dep_time is not null").select("carrier", "origin", "dest", "arr_delay").write.parquet(arguments.out)
spark.stop()
