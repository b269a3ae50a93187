"""An archive of the classes that Spark loads at its start (Java's class data sharing): the tests start hundreds of
JVMs, and with it each is ready in half of the time.

    python -m scripts.class_archive        makes it, in the folder of this virtual environment

A JVM whose Java, class path or garbage collector is not the archive's leaves it aside without a word.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The first compiler alone, and one thread for garbage: a fifth faster, for a JVM that lives for seconds."""

SILENT = "-Xlog:disable"
"""A JVM says on its standard output why it leaves an archive aside, and Spark's own scripts read that."""

WRITES_S = 120.0
"""For the JVM to write the archive, at its end."""


def java_options() -> str:
    """``JDK_JAVA_OPTIONS`` for the JVMs of tests: with the archive, where there is one."""
    return f"{SHORT_LIVED} {SILENT} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else SHORT_LIVED


def main() -> None:
    """Start a Spark, use it, and have it archive what it has loaded. Raises `SystemExit` where it does not."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    ARCHIVE.unlink(missing_ok=True)
    os.environ |= {"JDK_JAVA_OPTIONS": SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}
    at_exit = f"{SILENT} -XX:ArchiveClassesAtExit={ARCHIVE}"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", at_exit)
    with tempfile.TemporaryDirectory() as folder:
        spark = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "1").getOrCreate()
        use(spark, folder)
        gateway: Any = SparkContext._gateway
        jvm = gateway.proc
        spark.stop()
        jvm.stdin.close()
        jvm.wait(WRITES_S)
    if not ARCHIVE.exists():
        raise SystemExit(f"expected Spark's JVM, with {at_exit}, to write that file at its end; it did not")


def use(spark: Any, folder: str) -> None:
    """What most tests do: files in, Python and SQL between, files out; as a batch and as a stream."""
    rows = spark.range(8).selectExpr("id", "id % 2 AS even", "cast(id AS string) AS name")
    rows.write.csv(f"{folder}/in", header=True)
    read = spark.read.schema("id long, even long, name string").csv(f"{folder}/in", header=True)
    same = read.mapInPandas(lambda frames: frames, "id long, even long, name string")
    counted = same.groupBy("even").agg({"id": "sum", "name": "max"}).join(read, "even").orderBy("id")
    counted.write.parquet(f"{folder}/batch")
    spark.read.parquet(f"{folder}/batch").collect()

    def write(batch: Any, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/stream/{number}")

    stream = spark.readStream.schema("id long, even long, name string").csv(f"{folder}/in", header=True)
    sums = stream.groupBy("even").agg({"id": "sum"})
    options = {"checkpointLocation": f"{folder}/checkpoint"}
    query = sums.writeStream.outputMode("complete").options(**options).trigger(availableNow=True).foreachBatch(write)
    query.start().awaitTermination()


if __name__ == "__main__":
    main()
