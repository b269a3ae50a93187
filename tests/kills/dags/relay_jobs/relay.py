"""Thirteen tiny regions: enough of them for a kill at any moment of a run to find finished, running and waiting ones.

a1 --> a2 --> a3 --> a4 --+
b1 --> b2 --> b3 --> b4 --+--> total
c1 --> c2 --> c3 --> c4 --+
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from relay_jobs.gates import pass_gate  # type: ignore[import-not-found]  # put beside it by the test

GATES = {"gates": "{{ conf.get('gates', '') }}"}

relay = job("relay")


@relay.source(result=BLOCKING, params=GATES)
def a1(spark: Any, gates: str) -> Any:
    pass_gate(gates, "a1")
    return spark.range(30)


@relay.vertex(result=BLOCKING, params=GATES)
def a2(a1: Any, gates: str) -> Any:
    pass_gate(gates, "a2")
    return a1.selectExpr("id", "id * id AS value")


@relay.vertex(result=BLOCKING, params=GATES)
def a3(a2: Any, gates: str) -> Any:
    pass_gate(gates, "a3")
    return a2.where("id % 3 = 0")


@relay.vertex(result=BLOCKING, params=GATES)
def a4(a3: Any, gates: str) -> Any:
    pass_gate(gates, "a4")
    return a3.selectExpr("'a' AS chain", "sum(value) AS value")


@relay.source(result=BLOCKING, params=GATES)
def b1(spark: Any, gates: str) -> Any:
    pass_gate(gates, "b1")
    return spark.range(40)


@relay.vertex(result=BLOCKING, params=GATES)
def b2(b1: Any, gates: str) -> Any:
    pass_gate(gates, "b2")
    return b1.selectExpr("id", "id * 2 AS value")


@relay.vertex(result=BLOCKING, params=GATES)
def b3(b2: Any, gates: str) -> Any:
    pass_gate(gates, "b3")
    return b2.where("id % 4 = 1")


@relay.vertex(result=BLOCKING, params=GATES)
def b4(b3: Any, gates: str) -> Any:
    pass_gate(gates, "b4")
    return b3.selectExpr("'b' AS chain", "sum(value) AS value")


@relay.source(result=BLOCKING, params=GATES)
def c1(spark: Any, gates: str) -> Any:
    pass_gate(gates, "c1")
    return spark.range(50)


@relay.vertex(result=BLOCKING, params=GATES)
def c2(c1: Any, gates: str) -> Any:
    pass_gate(gates, "c2")
    return c1.selectExpr("id", "id + 7 AS value")


@relay.vertex(result=BLOCKING, params=GATES)
def c3(c2: Any, gates: str) -> Any:
    pass_gate(gates, "c3")
    return c2.where("id % 5 = 2")


@relay.vertex(result=BLOCKING, params=GATES)
def c4(c3: Any, gates: str) -> Any:
    pass_gate(gates, "c4")
    return c3.selectExpr("'c' AS chain", "sum(value) AS value")


@relay.sink(params=GATES)
def total(a4: Any, b4: Any, c4: Any, gates: str) -> Any:
    pass_gate(gates, "total")
    return a4.union(b4).union(c4)
