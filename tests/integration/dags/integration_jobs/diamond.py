"""A diamond with a sink beside it, and a branch that has nothing to do with it. Every region passes a gate.

numbers ~ base --+--> left ---+--> merged
                 +--> right --+
                 +--> side            lone
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

diamond = job("diamond")


@diamond.source(params={"count": "{{ conf.get('count', 100) }}"})
def numbers(spark: Any, count: str) -> Any:
    return spark.range(int(count))


@diamond.vertex(result=BLOCKING, params=GATES)
def base(numbers: Any, gates: str) -> Any:
    pass_gate(gates, "base")
    return numbers.selectExpr("id", "id % 5 AS key")


@diamond.vertex(result=BLOCKING, params=GATES)
def left(base: Any, gates: str) -> Any:
    pass_gate(gates, "left")
    return base.where("id % 2 = 0")


@diamond.vertex(result=BLOCKING, params=GATES)
def right(base: Any, gates: str) -> Any:
    pass_gate(gates, "right")
    return base.selectExpr("key", "id * 10 AS weight")


@diamond.sink(params=GATES)
def side(base: Any, gates: str) -> Any:
    pass_gate(gates, "side")
    return base.groupBy("key").count()


@diamond.sink(params=GATES)
def merged(left: Any, right: Any, gates: str) -> Any:
    pass_gate(gates, "merged")
    return left.join(right.groupBy("key").sum("weight"), "key").withColumnRenamed("sum(weight)", "weight")


@diamond.source(result=BLOCKING, params=GATES)
def lone_numbers(spark: Any, gates: str) -> Any:
    pass_gate(gates, "lone_numbers")
    return spark.range(7)


@diamond.sink(params=GATES)
def lone(lone_numbers: Any, gates: str) -> Any:
    pass_gate(gates, "lone")
    return lone_numbers.selectExpr("id + 1 AS id")
