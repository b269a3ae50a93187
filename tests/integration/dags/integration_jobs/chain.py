"""The smallest job with something to lose: made --> total."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

chain = job("chain")


@chain.source(result=BLOCKING, params=GATES | {"table": "{{ conf.get('table', '') }}"})
def made(spark: Any, gates: str, table: str) -> Any:
    pass_gate(gates, "made")
    return spark.table(table) if table else spark.range(50)


@chain.sink(params=GATES)
def total(made: Any, gates: str) -> Any:
    pass_gate(gates, "total")
    return made.selectExpr("sum(id) AS total")
