"""Jobs with parallel vertices, whose functions are never called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_recovery import BLOCKING, Split, dates, enumerated_by, files, job, per_file, same_as

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery import FileSplits
    from airflow_recovery.job import DateSplits
    from airflow_recovery.job.handed_splits import Splits

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


# Two subtasks share four days.
by_day = job("by_day")


@by_day.source(splits=dates("2024-01-01", "2024-01-05"), parallelism=2)
def drawn_days(spark: SparkSession, splits: DateSplits) -> DataFrame:
    return spark.createDataFrame([(day,) for day in splits.days], "day date")


@by_day.sink(parallelism=2)
def shown_days(drawn_days: DataFrame) -> DataFrame:
    return drawn_days


# One region, which must know what has vanished.
complete = job("complete")


@complete.source(splits=files("{{ params.lake }}/*.csv", vanished="fail"))
def whole(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@complete.sink
def shown_whole(whole: DataFrame) -> DataFrame:
    return whole


class Drops:
    """What was dropped into a folder, a name after the other, from where the one before it was."""

    def __init__(self, lake: str) -> None:
        self.lake, self.told = Path(lake), 0

    def __iter__(self) -> Iterator[Split]:
        for path in sorted(self.lake.iterdir())[self.told :]:
            self.told += 1
            yield Split.of(path.name, path.read_text())

    def snapshot_state(self) -> int:
        return self.told

    def restore(self, state: int) -> None:
        self.told = state


# One region, whose enumerator goes on where it was.
dropped = job("dropped")


@dropped.source(splits=enumerated_by(Drops, params={"lake": "{{ params.lake }}"}))
def drops(spark: SparkSession, splits: Splits) -> DataFrame:
    return spark.createDataFrame([(payload,) for payload in splits.payloads], "drop string")


@dropped.sink
def shown_drops(drops: DataFrame) -> DataFrame:
    return drops


# Two regions that commit split by split.
in_parts = job("in_parts")
LAKE = "{{ params.lake }}/*.csv"


@in_parts.source(splits=files(LAKE), commit="split", result=BLOCKING)
def parts_dropped(spark: SparkSession, splits: FileSplits) -> DataFrame:
    return spark.read.csv(splits.paths)


@in_parts.source(
    splits=files(LAKE, vanished="keep"), commit="split", result=BLOCKING, params={"version": "{{ params.version }}"}
)
def parts_kept(spark: SparkSession, splits: FileSplits, version: str) -> DataFrame:
    return spark.read.csv(splits.paths)


@in_parts.sink
def put_together(parts_dropped: DataFrame, parts_kept: DataFrame) -> DataFrame:
    return parts_dropped.unionAll(parts_kept)


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
