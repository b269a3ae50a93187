"""Two applications on Apache Livy: their batches outlive a lost worker, and the next try waits for them."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.sdk import DAG

from airflow_recovery.operators import recoverable

CODE = os.environ.get("EXAMPLE_CODE", "s3://code")
Livy = recoverable(LivyOperator)

with DAG(
    dag_id="livy",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = Livy(
        task_id="clean",
        file=f"{CODE}/clean.py",
        args=["--day", "{{ ds }}", "--out", "{output:cleaned}"],
        outputs=["cleaned"],
        # Without it the operator returns as soon as the batch is submitted, and is refused.
        polling_interval=1,
    )
    report = Livy(
        task_id="report",
        file=f"{CODE}/report.py",
        inputs={"cleaned": clean.result("cleaned")},
        args=["--in", "{input:cleaned}", "--out", "{output:report}"],
        outputs=["report"],
        polling_interval=1,
    )
