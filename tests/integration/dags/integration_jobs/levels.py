"""Three levels of consumers above a result that is verified, and another reader of it.

base --+--> first --> second --> third
       +--> side
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_recovery import BLOCKING, RegionContext, job

GATES = {"gates": "{{ conf.get('gates', '') }}"}

levels = job("levels", deterministic="verify")


@levels.source(result=BLOCKING, params=GATES)
def base(spark: Any, gates: str, context: RegionContext) -> Any:
    """Every attempt writes its rows into another number of files, in another order; other ones where a test says so."""
    more = 1 if (Path(gates) / "other_rows").exists() else 0
    numbers = spark.range(40 + more).selectExpr("id", "map('half', id / 2, 'rest', id % 2) AS parts")
    return numbers.repartition(context.attempt).sortWithinPartitions("id", ascending=context.attempt % 2 == 0)


@levels.vertex(result=BLOCKING)
def first(base: Any) -> Any:
    return base.selectExpr("id", "parts['rest'] AS rest")


@levels.vertex(result=BLOCKING)
def second(first: Any) -> Any:
    return first.groupBy("rest").count()


@levels.sink
def third(second: Any) -> Any:
    return second.selectExpr("sum(count) AS total")


@levels.sink
def side(base: Any) -> Any:
    return base.selectExpr("max(id) AS last")
