"""``dag_on_cluster.py LOST OPTIONS``: `dag.test()` of a job whose second region loses its input. Prints the states.

OPTIONS are further arguments of its group, as JSON.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import SparkJobTaskGroup

JOB = "clusterjobs.numbers:lossy"

with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc), params={"lost": sys.argv[1]}) as dag:
    SparkJobTaskGroup(group_id="g", job=JOB, **json.loads(sys.argv[2]))

if __name__ == "__main__":  # Airflow imports this file a second time, to serialise the DAG
    run = dag.test(logical_date=datetime(2024, 1, 2, tzinfo=timezone.utc))
    states = {instance.task_id: instance.state for instance in run.get_task_instances()}
    print(json.dumps({"run": run.state, "states": states}))
