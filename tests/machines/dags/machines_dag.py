"""Where a queue has a worker's name, tasks run there, else anywhere: `relay` by different ways, `ledger`, `forks`."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, task

from airflow_recovery.operators import SparkJobTaskGroup

CONNECT = "connect"
SUBMIT = "submit"
TIMEOUT = "execution.batch.job-recovery.previous-worker.recovery.timeout"


def relay(
    dag_id: str,
    total: str,
    queues: Mapping[str, str] | None = None,
    job_recovery: Mapping[str, str] | None = None,
    numbers: str = CONNECT,
    **of_group: Any,
) -> None:
    """``numbers`` and ``total`` are the connections of these regions: by `SUBMIT` one has a driver on its worker."""
    recovery = dict(job_recovery or {})
    with DAG(dag_id, schedule=None):
        group: Any = SparkJobTaskGroup(
            "g", job="machine_jobs.relay:relay", conn_id=numbers, job_recovery=recovery, **of_group
        )
        group.children["g.total"]._conn_id = total
        place(group, queues or {})


def place(group: Any, queues: Mapping[str, str]) -> None:
    for name, queue in queues.items():
        group.children[f"g.{name}"].queue = queue


relay("apart", CONNECT, {"numbers": "worker-1", "total": "worker-2"})
relay("anywhere", SUBMIT)
# Their drivers are dead, or frozen, when the next try begins to wait for them.
relay("killed", SUBMIT, None, {TIMEOUT: "20 s"})
relay("twice", SUBMIT, {"total": "twice"}, {TIMEOUT: "20 s"})
# Each of these queues is that of a test's own workers.
relay("followed", SUBMIT, {"total": "followed"})
relay("fenced", SUBMIT, {"total": "fenced"}, {TIMEOUT: "0 s"})
relay("full", SUBMIT, {"total": "full"})
relay("clock", SUBMIT, {"numbers": "clock", "total": "default"})
relay("folders", SUBMIT, {"numbers": "folder-1", "total": "folder-2"}, numbers=SUBMIT)
relay("lost", SUBMIT, {"total": "lost"})
relay("waiting", SUBMIT, {"total": "waiting"})

# The Spark of a run begins on one machine, and is used from another one.
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}
OTHERS = dict.fromkeys(("numbers", "total", "stop_spark"), "spark-2")
relay("own", SUBMIT, {"start_spark": "spark-1", **OTHERS}, numbers=SUBMIT, spark="per-run", conf=SMALL)
relay("own_on_each", SUBMIT, numbers=SUBMIT, spark="per-run", conf=SMALL)

with DAG("ledger", schedule=None):
    ledger: Any = SparkJobTaskGroup("g", job="machine_jobs.ledger:ledger", conn_id=CONNECT)
    place(ledger, dict.fromkeys(("added", "told", "believed"), "ledger"))

with DAG("forks", schedule=None):

    @task(queue="forks")
    def frozen() -> int:
        return gc.get_freeze_count()

    frozen()
