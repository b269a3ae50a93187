"""Shell commands as recoverable tasks: the one that has failed runs again, and so does what is gone and its readers."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_recovery.operators import RecoveryPublishOperator, recoverable

CODE = os.environ.get("EXAMPLE_CODE", "file:///code")
# In a shell a folder is written without `file://`, and `env` and `cwd` have no placeholders.
Bash = recoverable(BashOperator, fields=["bash_command"], paths="plain")

with DAG(
    dag_id="any_operator",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    sort = Bash(
        task_id="sort",
        inputs={"words": f"{CODE}/words.txt"},
        # The folder is the attempt's own, and nobody has made it yet.
        bash_command="mkdir -p '{output:sorted}' && sort '{input:words}' > '{output:sorted}/part-0'",
        outputs=["sorted"],
    )
    count = Bash(
        task_id="count",
        # A program is an input as well: another one there means that this task runs again, and no other.
        inputs={"sorted": sort.result("sorted"), "program": f"{CODE}/count.awk"},
        bash_command="mkdir -p '{output:counts}' && "
        "awk -f '{input:program}' '{input:sorted}'/* > '{output:counts}/part-0'",
        outputs=["counts"],
    )
    longest = Bash(
        task_id="longest",
        inputs={"words": f"{CODE}/words.txt"},
        bash_command="mkdir -p '{output:longest}' && wc -L < '{input:words}' > '{output:longest}/part-0'",
        outputs=["longest"],
    )
    [count, longest] >> RecoveryPublishOperator(task_id="publish")
