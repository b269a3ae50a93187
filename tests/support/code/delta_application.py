"""Writes a Delta table, or reads one version of it: `write RAW TABLE`, `read TABLE VERSION REPORT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

what, *given = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if what == "write":
    raw, table = given
    rows = spark.read.csv(raw, schema="n long").where("n IS NOT NULL")
    rows.write.format("delta").mode("overwrite").save(table)
else:
    table, version, report = given
    read = spark.read.format("delta").option("versionAsOf", version).load(table)
    read.selectExpr("sum(n) AS total").write.parquet(report)
spark.stop()
