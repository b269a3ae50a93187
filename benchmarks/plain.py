"""The demo's job without recovery: the same vertex functions, each region's result read and written by its prefix.

What somebody writes who has never heard of this project: no journal, no manifest, no attempt; a second try overwrites.
"""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_plain(spark: SparkSession, region: str, lake: str, output: str) -> None:
    """Run one region of `benchmarks.whole_flights`: ``lake`` and ``output`` are local folders."""
    from airflow_recovery import FilePattern, FileSplit, FileSplits
    from benchmarks.whole_flights import flights

    frames: dict[str, DataFrame] = {}
    wanted = flights.regions().region(region)
    for edge in wanted.inputs:
        frames[edge.result] = spark.read.parquet(f"{output}/{edge.result}")
    for name in wanted.vertices:
        vertex = flights.vertices[name]
        arguments: dict[str, object] = {edge.parameter: frames[edge.vertex] for edge in vertex.inputs}
        if vertex.wants_spark:
            arguments["spark"] = spark
        if isinstance(vertex.splits, FilePattern):
            pattern = vertex.splits.pattern.replace("{{ params.lake }}", lake)
            paths = tuple(sorted(glob.glob(pattern)))
            arguments["splits"] = FileSplits(tuple(FileSplit(path, 0, "") for path in paths), paths)
        arguments.update(vertex.params)
        frames[name] = vertex.function(**arguments)
        if name in wanted.results:
            frames[name].write.mode("overwrite").parquet(f"{output}/{name}")
