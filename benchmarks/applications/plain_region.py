"""The application of the plain `SparkSubmitOperator`: one region of the demo's job, without recovery."""

import sys

from pyspark.sql import SparkSession

from benchmarks.plain import run_plain

if __name__ == "__main__":
    region, lake, output = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    run_plain(session, region, lake, output)
    session.stop()
