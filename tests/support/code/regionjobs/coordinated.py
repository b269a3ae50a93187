"""A source whose subtasks share a coordinator: each takes the next two numbers that nobody has been given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_recovery.job import RegionContext, job
from airflow_recovery.model.result_type import BLOCKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class GivesOut:
    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.mine: list[int] = []

    def take(self) -> list[int]:
        self.mine = [number for number in range(6) if number not in self.taken][:2]
        return self.mine

    def snapshot_state(self) -> list[int]:
        return self.mine

    def restore(self, state: Mapping[str, list[int]]) -> None:
        self.taken = {number for mine in state.values() for number in mine}


coordinated = job("coordinated")


@coordinated.source(parallelism=["a", "b", "c"], coordinator=GivesOut, result=BLOCKING)
def given(spark: SparkSession, context: RegionContext) -> DataFrame:
    assert isinstance(context.coordinator, GivesOut)
    return spark.createDataFrame([(each,) for each in context.coordinator.take()], "number int")


@coordinated.sink
def total(given: DataFrame) -> DataFrame:
    return given
