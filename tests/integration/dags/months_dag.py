"""`months`: mapped task groups, of literal keys and of keys that the run decides; `parts`: the latter. `by_file`:
batches.
"""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

# As many at once as a test needs to start together: more would only starve each other of heartbeats.
with DAG("months", schedule=None, max_active_tasks=4):
    # Depth first: a month is cleaned as soon as it is read.
    SparkJobTaskGroup("g", job="integration_jobs.months:months", conn_id="connect", weight_rule="upstream")

with DAG("parts", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.parts:parts", conn_id="connect")

# A subtask for each file, two of them in one task instance.
with DAG("by_file", schedule=None):
    SparkJobTaskGroup(
        "g", job="integration_jobs.by_file:by_file", conn_id="connect", weight_rule="upstream", subtasks_per_task=2
    )
