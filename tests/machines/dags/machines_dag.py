"""`relay` by different ways: where a task's queue is the name of a worker, it runs there, else on any of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG

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
) -> None:
    """``numbers`` and ``total`` are the connections of these regions: by `SUBMIT` one has a driver on its worker."""
    with DAG(dag_id, schedule=None):
        group: Any = SparkJobTaskGroup(
            "g", job="machine_jobs.relay:relay", conn_id=numbers, job_recovery=dict(job_recovery or {})
        )
        group.children["g.total"]._conn_id = total
        for region, queue in (queues or {}).items():
            group.children[f"g.{region}"].queue = queue


relay("apart", CONNECT, {"numbers": "worker-1", "total": "worker-2"})
relay("anywhere", SUBMIT)
# Each of these queues is that of a test's own workers.
relay("followed", SUBMIT, {"total": "followed"})
relay("fenced", SUBMIT, {"total": "fenced"}, {TIMEOUT: "0 s"})
relay("full", SUBMIT, {"total": "full"})
relay("clock", SUBMIT, {"numbers": "clock", "total": "default"})
relay("folders", SUBMIT, {"numbers": "folder-1", "total": "folder-2"}, numbers=SUBMIT)
