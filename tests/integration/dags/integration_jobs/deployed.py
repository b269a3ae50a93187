"""What the tests deploy other versions of. Every region passes a gate.

numbers ~ base --+--> left ----> merged
                 +--> right ---> side           lone
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

deployed = job("deployed")


@deployed.source(params={"day": "{{ ds }}"})
def numbers(spark: Any, day: str) -> Any:
    return spark.range(len(day))


@deployed.vertex(result=BLOCKING, params=GATES)
def base(numbers: Any, gates: str) -> Any:
    pass_gate(gates, "base")
    return numbers.selectExpr("id", "id % 5 AS key")


@deployed.vertex(result=BLOCKING, params=GATES)
def left(base: Any, gates: str) -> Any:
    pass_gate(gates, "left")
    return shifted(base)


def shifted(rows: Any) -> Any:
    # by one
    return rows.selectExpr("id + 1 AS id")


@deployed.vertex(result=BLOCKING, deterministic="verify", params=GATES)
def right(base: Any, gates: str) -> Any:
    pass_gate(gates, "right")
    return base.selectExpr("key", "id * 10 AS weight")


@deployed.sink(params=GATES)
def side(right: Any, gates: str) -> Any:
    pass_gate(gates, "side")
    return right.groupBy("key").sum("weight").withColumnRenamed("sum(weight)", "weight")


@deployed.sink(params=GATES)
def merged(left: Any, gates: str) -> Any:
    pass_gate(gates, "merged")
    return left.selectExpr("sum(id) AS total")


@deployed.source(params=GATES)
def few(spark: Any, gates: str) -> Any:
    pass_gate(gates, "few")
    return spark.range(3)


@deployed.sink
def lone(few: Any) -> Any:
    return few.selectExpr("id + 7 AS id")
