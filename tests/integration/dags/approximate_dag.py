"""Streaming regions that channels connect, under each strategy; one whose budget ends; and some that lack slots."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_recovery import FailoverStrategy
from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.planning.restart_strategy import FixedDelay, NoRestart

OFTEN = FixedDelay(attempts=20, delay_s=0.1)

STRATEGIES = {
    "single": FailoverStrategy.APPROXIMATE_SINGLE,
    "downstream": FailoverStrategy.APPROXIMATE_DOWNSTREAM,
    "sink": FailoverStrategy.APPROXIMATE_SINK,
}
for name, strategy in STRATEGIES.items():
    with DAG(f"stages_{name}", schedule=None):
        SparkJobTaskGroup(
            "g",
            job="integration_jobs.streams:scoring",
            conn_id="submit",
            failover_strategy=strategy,
            restart_strategy=OFTEN,
        )

with DAG("stages_brief", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.streams:brief", conn_id="submit", restart_strategy=OFTEN)

with DAG("stages_cluster", schedule=None):
    cluster: Any = SparkJobTaskGroup("g", job="integration_jobs.streams:scoring", conn_id="submit")
    cluster.children["g.scores"]._conn_id = "cluster"

with DAG("stages_tight", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.streams:tight", conn_id="submit", restart_strategy=OFTEN)

with DAG("stages_few_slots", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.streams:blocked", conn_id="submit", pool="one_slot")

with DAG("stages_no_slot", schedule=None):

    @task(pool="two_slots", priority_weight=10)
    def hog(**context: Any) -> None:
        """Somebody else's task in the pool."""
        while (Path(context["dag_run"].conf["gates"]) / "hog.hold").exists():
            time.sleep(0.1)

    hog()
    group: Any = SparkJobTaskGroup(
        "g", job="integration_jobs.streams:blocked", conn_id="submit", pool="two_slots", restart_strategy=NoRestart()
    )
    group.children["g.events"].priority_weight = 5
