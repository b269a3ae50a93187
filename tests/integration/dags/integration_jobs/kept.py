"""raw ~ kept (cached by the Connect server) --> total."""

from __future__ import annotations

from typing import Any

from airflow_recovery import CACHED, files, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

keeping = job("keeping", deterministic="verify")


@keeping.source(splits=files("{{ conf.lake }}/*.csv"))
def raw(spark: Any, splits: Any) -> Any:
    return spark.read.schema("id long").csv(splits.paths)


@keeping.vertex(result=CACHED, params=GATES)
def kept(raw: Any, gates: str) -> Any:
    pass_gate(gates, "kept")
    return raw.selectExpr("id", "id * id AS square")


@keeping.sink(params=GATES)
def total(kept: Any, gates: str) -> Any:
    pass_gate(gates, "total")
    return kept.selectExpr("sum(square) AS total")
