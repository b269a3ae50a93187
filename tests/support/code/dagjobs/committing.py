"""raw ~ delays, which commits to a file beside the params' lake by two functions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery import files, job
from airflow_recovery.errors import SinkNotApplied
from airflow_recovery.sinks import Committable, CommitToken, ProbedSink, SinkResources

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

TARGET = "COMMITTING_TARGET"
"""The variable with the target's path: a line for each commit."""


def append_line(committable: Committable, resources: SinkResources) -> None:
    """The target. A file beside it says how it fails."""
    target = Path(os.environ[TARGET])
    if target.with_suffix(".refuses").exists():
        raise SinkNotApplied("the target is closed")
    if target.with_suffix(".breaks").exists():
        raise OSError("reset by peer")
    with target.open("a") as lines:
        lines.write(f"{committable.token.text} {committable.manifest.result}\n")


def has_line(token: CommitToken, resources: SinkResources) -> bool:
    """What it says when it is asked."""
    target = Path(os.environ[TARGET])
    return target.exists() and token.text in target.read_text()


committing = job("committing")


@committing.source(splits=files("{{ params.lake }}/*.csv"))
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@committing.sink(commit=ProbedSink(apply=append_line, is_applied=has_line))
def delays(raw: DataFrame) -> DataFrame:
    return raw
