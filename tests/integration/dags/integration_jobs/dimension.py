"""A result that every date shares, and one sink of each date: airports --> daily."""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING_PERSISTENT, Retention, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

dimension = job("dimension", retention=Retention.as_consumed())


@dimension.source(result=BLOCKING_PERSISTENT, version="1", params=GATES)
def airports(spark: Any, gates: str) -> Any:
    pass_gate(gates, "airports")
    return spark.range(40)


@dimension.sink(params=GATES | {"day": "{{ ds }}"})
def daily(airports: Any, gates: str, day: str) -> Any:
    pass_gate(gates, "daily")
    return airports.selectExpr(f"'{day}' AS day", "sum(id) AS total")
