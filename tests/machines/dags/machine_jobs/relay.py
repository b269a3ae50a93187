"""numbers --> total, two regions."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from machine_jobs.gates import pass_gate  # type: ignore[import-not-found]  # put beside it by the test

GATES = {"gates": "{{ conf.get('gates', '') }}"}

relay = job("relay")


@relay.source(result=BLOCKING, params=GATES)
def numbers(spark: Any, gates: str) -> Any:
    pass_gate(gates, "numbers")
    return spark.range(10)


@relay.sink(params=GATES)
def total(numbers: Any, gates: str) -> Any:
    pass_gate(gates, "total")
    return numbers.selectExpr("sum(id) AS total")
