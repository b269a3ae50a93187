"""A vertex that needs memory: a text of so many megabytes, made in the driver or in a task."""

from __future__ import annotations

from typing import Any

from airflow_recovery import job

hungry = job("hungry")


@hungry.source(params={"where": "{{ conf.get('where') }}"})
def grown(spark: Any, where: str) -> Any:
    # A constant is computed in the driver, when the query is planned.
    text = "repeat('x', 800000000)" if where == "driver" else "repeat('x', cast(id + 800000000 AS int))"
    return spark.range(1).selectExpr(f"length({text}) AS length")


@hungry.sink
def told(grown: Any) -> Any:
    return grown
