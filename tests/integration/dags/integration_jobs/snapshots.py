"""Classes that a new one takes over from: an enumerator, and a coordinator.

given[a], given[b] --> seen ~ drops
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_recovery import BLOCKING, Split, enumerated_by, job

snapshots = job("snapshots")


class Drops:
    """The numbers that were dropped into a folder, from where the one before it was. Notes where it began."""

    def __init__(self, lake: str) -> None:
        self.lake, self.told = Path(lake), 0

    def __iter__(self) -> Iterator[Split]:
        with self.lake.with_suffix(".began").open("a") as notes:
            notes.write(f"{self.told}\n")
        for drop in sorted(self.lake.iterdir())[self.told :]:
            self.told += 1
            yield Split.of(drop.name, int(drop.name))

    def snapshot_state(self) -> int:
        return self.told

    def restore(self, state: int) -> None:
        self.told = state


class Numbers:
    """Gives each subtask the next two numbers that no other one has been given."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.own: list[int] = []

    def take(self) -> list[int]:
        self.own = [number for number in range(4) if number not in self.taken][:2]
        return self.own

    def snapshot_state(self) -> list[int]:
        return self.own

    def restore(self, state: Mapping[str, list[int]]) -> None:
        self.taken = {number for own in state.values() for number in own}


@snapshots.source(parallelism=["a", "b"], coordinator=Numbers, result=BLOCKING)
def given(spark: Any, context: Any) -> Any:
    return spark.createDataFrame([(number,) for number in context.coordinator.take()], "number INT")


@snapshots.source(splits=enumerated_by(Drops, params={"lake": "{{ conf.lake }}"}))
def drops(spark: Any, splits: Any) -> Any:
    return spark.createDataFrame([(number,) for number in splits.payloads], "number INT")


@snapshots.sink
def seen(given: Any, drops: Any) -> Any:
    return given.union(drops)
