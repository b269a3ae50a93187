"""Jobs with parallel vertices, whose functions are never called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_recovery import BLOCKING, files, job, per_file, same_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits

# read[m] --> cleaned[m] --> total, all in one chain but the last
months = job("months")


@months.source(splits=files("{{ params.lake }}/{{ subtask }}.csv"), parallelism=["jan", "feb"], result=BLOCKING)
def read(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@months.vertex(parallelism=["feb", "jan"], result=BLOCKING)
def cleaned(read: DataFrame, context: Any) -> DataFrame:
    return read


@months.sink
def total(cleaned: DataFrame) -> DataFrame:
    return cleaned


# raw[file] ~ kept[file] --> merged
by_file = job("by_file")


@by_file.source(splits=files("{{ params.lake }}/*.csv"), parallelism=per_file)
def raw(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@by_file.vertex(parallelism=same_as("raw"), result=BLOCKING)
def kept(raw: DataFrame) -> DataFrame:
    return raw


@by_file.sink
def merged(kept: DataFrame) -> DataFrame:
    return kept


# Two subtasks share the files.
dealt = job("dealt")


@dealt.source(splits=files("{{ params.lake }}/*.csv"), parallelism=2)
def dealt_files(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@dealt.sink(parallelism=2)
def shown(dealt_files: DataFrame) -> DataFrame:
    return dealt_files


# drawn[d] --> kept_days[d] --> week
days = job("days")


@days.source(parallelism=["mon", "tue", "wed", "thu", "fri"], result=BLOCKING)
def drawn(spark: SparkSession) -> DataFrame:
    return spark.range(1)


@days.vertex(parallelism=same_as("drawn"), result=BLOCKING)
def kept_days(drawn: DataFrame) -> DataFrame:
    return drawn


@days.sink
def week(kept_days: DataFrame) -> DataFrame:
    return kept_days
