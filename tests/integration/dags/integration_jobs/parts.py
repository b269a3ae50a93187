"""made --> counted[part]: the run decides which parts there are."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

parts = job("parts")


@parts.source(result=BLOCKING, params=GATES)
def made(spark: Any, gates: str) -> Any:
    pass_gate(gates, "made")
    return spark.range(5)


@parts.sink(parallelism="{{ conf.parts }}", params=GATES)
def counted(made: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"counted-{context.subtask.key}")
    return made.selectExpr("sum(id) AS total", f"'{context.subtask.key}' AS part")
