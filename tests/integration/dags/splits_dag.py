"""Sources that commit split by split: in one task, with a home for each split, and as subtasks come for them.

What reads splits is submitted, so that there is a JVM to kill; it can't run over Spark Connect.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

for name in ("alone", "dealt", "pulled"):
    with DAG(name, schedule=None):
        group: Any = SparkJobTaskGroup("g", job=f"integration_jobs.splits:{name}", conn_id="submit")
        group.children["g.counted"]._conn_id = "connect"
