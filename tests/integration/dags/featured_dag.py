"""`featured`: one group among Airflow's own features.

choose --+--> up --> outer.g (made --> total --> publish) --> down
         |            +--> told (all_done), alarm (one_failed), read[0], read[1]
         +--> other --+--> joined (none_failed_min_one_success)
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Asset, get_current_context, setup, task, task_group, teardown
from integration_jobs.gates import pass_gate

from airflow_recovery.operators import SparkJobTaskGroup

JOB = "integration_jobs.featured:featured"


def at_gate(name: str) -> Path:
    """The folder of this run's gates, behind the gate ``name``."""
    folder = get_current_context()["dag_run"].conf["gates"]
    pass_gate(folder, name)
    return Path(folder)


with DAG("featured", schedule=None):

    @task.branch
    def choose() -> str:
        return "other" if (at_gate("choose") / "other").exists() else "up"

    @setup
    def up() -> None:
        (at_gate("up") / "cluster").touch()

    @teardown
    def down() -> None:
        (at_gate("down") / "cluster").unlink(missing_ok=True)

    @task
    def other() -> None:
        at_gate("other")

    @task(trigger_rule="none_failed_min_one_success")
    def joined() -> None:
        at_gate("joined")

    @task(trigger_rule="all_done")
    def told() -> None:
        at_gate("told")

    @task(trigger_rule="one_failed")
    def alarm() -> None:
        at_gate("alarm")

    @task
    def read(index: int) -> None:
        at_gate(f"read-{index}")

    @task_group
    def outer() -> None:
        SparkJobTaskGroup(
            "g",
            job=JOB,
            conn_id="connect",
            pool="narrow",
            queue="spark",
            priority_weight=7,
            weight_rule="absolute",
            outlets=[Asset("featured-total")],
        )

    chosen, cluster, regions, apart = choose(), up(), outer(), other()
    chosen >> [cluster, apart]
    cluster >> regions >> down().as_teardown(setups=cluster)
    regions >> [told(), alarm(), read.expand(index=[0, 1])]
    [regions, apart] >> joined()
