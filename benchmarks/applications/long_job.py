"""An existing application that computes for half a minute in its driver's JVM (local mode): joins, sorts, text."""

from pyspark.sql import SparkSession, functions

session = SparkSession.builder.getOrCreate()
session.conf.set("spark.sql.shuffle.partitions", "4")
rows = session.range(6_000_000).selectExpr("id", "id % 1000003 AS key", "concat('row ', id % 9973) AS text")
for _ in range(3):
    grouped = rows.groupBy("key").agg(functions.max("text").alias("most"), functions.count("*").alias("n"))
    joined = rows.join(grouped, "key").filter("most LIKE '%7%'").selectExpr("id", "key", "sqrt(id) AS root")
    joined.sort("root").selectExpr("sum(hash(id, key, root))").collect()
session.stop()
