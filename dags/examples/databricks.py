"""Two runs on Databricks that are submitted once: they outlive a lost worker, and the next try waits for them."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.databricks.operators.databricks import DatabricksSubmitRunOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

CODE = os.environ.get("EXAMPLE_CODE", "s3://code")
CLUSTER: dict[str, Any] = {"spark_version": "15.4.x-scala2.12", "node_type_id": "m5.large", "num_workers": 2}
# The cluster's size is none of what is computed: another one makes nobody run again.
Databricks = recoverable(DatabricksSubmitRunOperator, fields=["spark_python_task"], paths="plain")

with DAG(
    dag_id="databricks",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = Databricks(
        task_id="clean",
        new_cluster=CLUSTER,
        spark_python_task={
            "python_file": f"{CODE}/clean.py",
            "parameters": ["--day", "{{ ds }}", "--out", "{output:cleaned}"],
        },
        outputs=["cleaned"],
        polling_period_seconds=1,
    )
    report = Databricks(
        task_id="report",
        new_cluster=CLUSTER,
        spark_python_task={
            "python_file": f"{CODE}/report.py",
            "parameters": ["--in", "{input:cleaned}", "--out", "{output:report}"],
        },
        inputs={"cleaned": clean.result("cleaned")},
        outputs=["report"],
        polling_period_seconds=1,
    )
