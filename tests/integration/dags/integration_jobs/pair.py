"""made --> (first, second): one region with two results. While `second` is held, `first` is written already."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

pair = job("pair")


@pair.source(result=BLOCKING, params=GATES)
def made(spark: Any, gates: str) -> Any:
    pass_gate(gates, "made")
    return spark.range(20)


@pair.vertex(deterministic="assume")
def shared(made: Any) -> Any:
    return made.selectExpr("id", "id * id AS square")


@pair.sink
def first(shared: Any) -> Any:
    return shared.selectExpr("sum(square) AS total")


@pair.sink(params=GATES)
def second(shared: Any, gates: str) -> Any:
    pass_gate(gates, "second")
    return shared.where("id < 3")
