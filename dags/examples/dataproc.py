"""A job on a cluster of Dataproc, and a batch without one: both outlive a lost worker, and the next try waits."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.google.cloud.operators.dataproc import (  # type: ignore[import-not-found]
    DataprocCreateBatchOperator,
    DataprocSubmitJobOperator,
)
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

CODE = os.environ.get("EXAMPLE_CODE", "gs://code")
WHERE: dict[str, Any] = {"region": "europe-west1", "polling_interval_seconds": 1}
# The cluster's name stands in `job`, and so is a part of what is computed: on another one the job runs again.
Job = recoverable(DataprocSubmitJobOperator, fields=["job"], paths="plain")
Batch = recoverable(DataprocCreateBatchOperator, fields=["batch"], paths="plain")


def program(name: str, *arguments: str) -> dict[str, Any]:
    return {"main_python_file_uri": f"{CODE}/{name}", "args": [*arguments]}


with DAG(
    dag_id="dataproc",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = Job(
        task_id="clean",
        # No `reference`: a name of its own would be one for all attempts, and is refused.
        job={
            "placement": {"cluster_name": "flights"},
            "pyspark_job": program("clean.py", "--day", "{{ ds }}", "--out", "{output:cleaned}"),
        },
        outputs=["cleaned"],
        **WHERE,
    )
    report = Batch(
        task_id="report",
        batch={"pyspark_batch": program("report.py", "--in", "{input:cleaned}", "--out", "{output:report}")},
        inputs={"cleaned": clean.result("cleaned")},
        outputs=["report"],
        **WHERE,
    )
