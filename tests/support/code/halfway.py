"""An application that leaves with exit code 0 in the middle of its write, with ``--until`` or ``--fail``."""

import argparse
import glob
import threading
import time
from contextlib import suppress

from pyspark import TaskContext
from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--writer", choices=["parquet", "partitions", "hadoop"], default="parquet")
parser.add_argument("--hold", action="store_true", help="the second of two tasks never ends")
parser.add_argument("--fail", action="store_true", help="the second of two tasks fails, and nobody hears of it")
parser.add_argument("--until", help="leave when a file matches this pattern")
arguments = parser.parse_args()

spark = SparkSession.builder.getOrCreate()
hold, fail = arguments.hold, arguments.fail


def leave() -> None:
    while not glob.glob(arguments.until):
        time.sleep(0.02)
    spark._jvm.java.lang.Runtime.getRuntime().halt(0)


def rows(numbers):
    if hold and TaskContext.get().partitionId() == 1:
        threading.Event().wait()
    if fail and TaskContext.get().partitionId() == 1:
        raise ValueError("swallowed")
    yield from ((number, number % 2) for number in numbers)


if arguments.until:
    threading.Thread(target=leave, daemon=True).start()
made = spark.sparkContext.parallelize(range(8), 2).mapPartitions(rows)
if arguments.writer == "hadoop":
    made.map(lambda row: (None, str(row[0]))).saveAsNewAPIHadoopFile(
        arguments.out,
        "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
        keyClass="org.apache.hadoop.io.NullWritable",
        valueClass="org.apache.hadoop.io.Text",
    )
else:
    write = made.toDF("number long, half long").write
    if arguments.writer == "partitions":
        write = write.partitionBy("half").mode("overwrite")
    with suppress(*([Exception] if fail else [])):
        write.parquet(arguments.out)
if arguments.until:
    threading.Event().wait()
