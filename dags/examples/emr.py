"""Two jobs on EMR Serverless: they outlive a lost worker, and one that fails is started again as another job."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

CODE = os.environ.get("EXAMPLE_CODE", "s3://code")
WHERE: dict[str, Any] = {
    "application_id": "00fexample",
    "execution_role_arn": "arn:aws:iam::123456789012:role/emr",
    "waiter_delay": 1,
    "waiter_max_attempts": 24 * 3600,  # by default it gives up after 25 questions
}
# The application's id is none of what is computed: another one makes nobody run again. EMR reads and writes s3://.
Serverless = recoverable(EmrServerlessStartJobOperator, fields=["job_driver"], paths="plain")


def submit(program: str, *arguments: str) -> dict[str, Any]:
    return {"sparkSubmit": {"entryPoint": f"{CODE}/{program}", "entryPointArguments": [*arguments]}}


with DAG(
    dag_id="emr",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = Serverless(
        task_id="clean",
        job_driver=submit("clean.py", "--day", "{{ ds }}", "--out", "{output:cleaned}"),
        outputs=["cleaned"],
        **WHERE,
    )
    report = Serverless(
        task_id="report",
        job_driver=submit("report.py", "--in", "{input:cleaned}", "--out", "{output:report}"),
        inputs={"cleaned": clean.result("cleaned")},
        outputs=["report"],
        **WHERE,
    )
