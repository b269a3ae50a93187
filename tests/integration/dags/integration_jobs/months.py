"""Twelve months, subtask by subtask through two regions; then all of them together. Keys of the run make a third chain.

read[m] --> cleaned[m] --+--> total            days (known in the run): counted[d], broadcast of `total`
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, job, same_as
from integration_jobs.gates import pass_gate

MONTHS = [f"2013-{month:02}" for month in range(1, 13)]
GATES = {"gates": "{{ conf.get('gates', '') }}"}

months = job("months")


@months.source(result=BLOCKING, parallelism=MONTHS, params=GATES | {"month": "{{ subtask }}"})
def read(spark: Any, context: Any, gates: str, month: str) -> Any:
    pass_gate(gates, f"read-{month}")
    assert (context.subtask.key, context.subtask.parallelism) == (month, 12)
    return spark.range(int(month[-2:])).selectExpr("id", f"'{month}' AS month")


@months.vertex(result=BLOCKING, parallelism=same_as("read"), params=GATES)
def cleaned(read: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"cleaned-{context.subtask.key}")
    return read.where("id % 2 = 0")


@months.sink(params=GATES)
def total(cleaned: Any, gates: str) -> Any:
    pass_gate(gates, "total")
    return cleaned.groupBy("month").count()


@months.sink(parallelism="{{ conf.get('parts', 'a,b,c,d') }}", params=GATES)
def counted(total: Any, context: Any, gates: str) -> Any:
    pass_gate(gates, f"counted-{context.subtask.key}")
    return total.selectExpr("sum(count) AS count", f"'{context.subtask.key}' AS part")
