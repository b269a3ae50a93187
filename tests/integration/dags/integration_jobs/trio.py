"""A result with two readers, and a region that has nothing to do with them; once as it is, once with `assume`.

made --+--> total
       +--> side            seven ~ aside
"""

from __future__ import annotations

from typing import Any

from airflow_recovery import BLOCKING, Job, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}


def declared(name: str, **options: Any) -> Job:
    found = job(name, **options)

    @found.source(result=BLOCKING, params=GATES)
    def made(spark: Any, gates: str) -> Any:
        pass_gate(gates, "made")
        return spark.range(50)

    @found.sink(params=GATES)
    def total(made: Any, gates: str) -> Any:
        pass_gate(gates, "total")
        return made.selectExpr("sum(id) AS total")

    @found.sink(params=GATES)
    def side(made: Any, gates: str) -> Any:
        pass_gate(gates, "side")
        return made.selectExpr("max(id) AS last")

    @found.source
    def seven(spark: Any) -> Any:
        return spark.range(7)

    @found.sink(params=GATES)
    def aside(seven: Any, gates: str) -> Any:
        pass_gate(gates, "aside")
        return seven

    return found


trio = declared("trio")
assumed = declared("assumed", deterministic="assume")
