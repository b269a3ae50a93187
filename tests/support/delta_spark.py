"""A real Spark that has Delta's jars and settings, as a user's has."""

from __future__ import annotations

from scripts.jars import fetched_jars

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
"""The retention: so that a test may vacuum what is new. Numbers of partitions: for a small machine."""


def delta_conf() -> dict[str, str]:
    """Raises `ConfigurationError` where the jars were not fetched."""
    jars = fetched_jars("delta", "Delta's jars for Spark", "delta-spark_4.2_2.13", "--drill")
    return {**DELTA_SETTINGS, "spark.driver.extraClassPath": f"{jars}/*", "spark.executor.extraClassPath": f"{jars}/*"}
