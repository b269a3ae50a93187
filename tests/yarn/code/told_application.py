"""``told_application.py OUT GATE SAYS``: a user's Spark application, which writes when the file GATE is there.

It leaves its YARN id in ``GATE.<id>`` first. It writes one object by itself, so that it needs no executor.
"""

import sys
import time
from pathlib import Path

import boto3
from pyspark.sql import SparkSession

out, gate, says = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
Path(f"{gate}.{spark.sparkContext.applicationId}").touch()
while not Path(gate).exists():
    time.sleep(0.1)
bucket, _, key = out.partition("://")[2].partition("/")
boto3.client("s3").put_object(Bucket=bucket, Key=f"{key}/part-0", Body=says.encode())
spark.stop()
