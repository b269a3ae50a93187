"""made --> total, on a cluster that a setup makes and a teardown removes: a file in the run's folder of gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow_recovery import BLOCKING, job
from integration_jobs.gates import pass_gate

GATES = {"gates": "{{ conf.get('gates', '') }}"}

featured = job("featured")


def on_the_cluster(gates: str, name: str) -> None:
    pass_gate(gates, name)
    if gates and not (Path(gates) / "cluster").exists():
        raise TypeError(f"{name}: there is no cluster")


@featured.source(result=BLOCKING, params=GATES)
def made(spark: Any, gates: str) -> Any:
    on_the_cluster(gates, "made")
    return spark.range(50)


@featured.sink(params=GATES)
def total(made: Any, gates: str) -> Any:
    on_the_cluster(gates, "total")
    return made.selectExpr("sum(id) AS total")
