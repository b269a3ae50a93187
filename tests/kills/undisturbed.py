"""What `relay` makes where nothing happens, without Airflow and journal: rows by result, as JSON on standard output.

A program of its own, since a process that has spoken to a Connect server can't open a session of another kind.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from relay_jobs.relay import relay

if __name__ == "__main__":
    spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
    rows = {}
    for name, result in relay.run_local(spark).items():
        columns = sorted(result.columns)
        rows[name] = sorted([row[column] for column in columns] for row in result.collect())
    spark.stop()
    print(json.dumps(rows))
