"""Copies a CSV file or a folder of Parquet to Parquet. It has read it when it comes to its gate."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))
from integration_jobs.gates import pass_gate

source, target, gates, name = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
rows = spark.read.schema("amount long").csv(source) if source.endswith(".csv") else spark.read.parquet(source)
print(f"{rows.count()} rows on Spark {spark.version}")
pass_gate(gates, name)
rows.write.parquet(target)
