"""``told_application.py OUT GATE SAYS``: a user's Spark application, which writes when the object GATE is there.

It writes one object by itself, so that it needs no executor. ``gate`` is one of its ``py_files``.
"""

import sys

from gate import leave, wait_at  # type: ignore[import-not-found]
from pyspark.sql import SparkSession

out, gate, says = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
wait_at(gate, spark.sparkContext.applicationId)
leave(f"{out}/part-0", says.encode())
spark.stop()
