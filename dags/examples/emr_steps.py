"""Two steps of a cluster on EMR: they outlive a lost worker, and a killed task cancels its own."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

CODE = os.environ.get("EXAMPLE_CODE", "s3://code")
WHERE: dict[str, Any] = {
    "job_flow_id": "j-EXAMPLE",
    "wait_for_completion": True,  # without it the operator is refused
    "waiter_delay": 1,
    "waiter_max_attempts": 24 * 3600,  # by default it gives up after 60 questions
}
# The cluster's id is none of what is computed: on another one nobody runs again. EMR reads and writes s3://.
Steps = recoverable(EmrAddStepsOperator, fields=["steps"], paths="plain")


def submit(program: str, *arguments: str) -> list[dict[str, Any]]:
    command = ["spark-submit", f"{CODE}/{program}", *arguments]
    jar = {"Jar": "command-runner.jar", "Args": command}
    return [{"Name": program, "ActionOnFailure": "CONTINUE", "HadoopJarStep": jar}]


with DAG(
    dag_id="emr_steps",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = Steps(
        task_id="clean",
        steps=submit("clean.py", "--day", "{{ ds }}", "--out", "{output:cleaned}"),
        outputs=["cleaned"],
        **WHERE,
    )
    report = Steps(
        task_id="report",
        steps=submit("report.py", "--in", "{input:cleaned}", "--out", "{output:report}"),
        inputs={"cleaned": clean.result("cleaned")},
        outputs=["report"],
        **WHERE,
    )
