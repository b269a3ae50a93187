"""Writes a Delta table, or reads one version of it: `write RAW TABLE`, `read TABLE VERSION REPORT`.

`add TABLE VERSION DIED`: adds ten to what the version has, in place of all rows, and dies behind that, once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

what, *given = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
if what == "write":
    raw, table = given
    rows = spark.read.csv(raw, schema="n long").where("n IS NOT NULL")
    rows.write.format("delta").mode("overwrite").save(table)
elif what == "add":
    table, version, died = given
    read = spark.read.format("delta").option("versionAsOf", version).load(table)
    read.selectExpr("n + 10 AS n").write.format("delta").mode("overwrite").save(table)
    if not Path(died).exists():
        Path(died).touch()
        sys.exit("killed behind its commit")
else:
    table, version, report = given
    read = spark.read.format("delta").option("versionAsOf", version).load(table)
    read.selectExpr("sum(n) AS total").write.parquet(report)
spark.stop()
