"""Two existing Spark applications made recoverable: another class name, ``outputs=``, and a placeholder."""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator

APPLICATIONS = os.path.join(os.path.dirname(__file__), "applications")
LAKE = os.environ.get("FLIGHTS_LAKE", "s3://lake/flights")
SPARK_LAKE = LAKE.replace("s3://", "s3a://", 1)

with DAG(
    dag_id="drop_in",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=f"{APPLICATIONS}/clean.py",
        # A URI as an input: its objects belong to the trace. Another file there means that the task runs again.
        inputs={"flights": f"{LAKE}/flights.csv"},
        application_args=["--flights", f"{SPARK_LAKE}/flights.csv", "--out", "{output:cleaned}"],
        outputs=["cleaned"],
        # If it must run again and writes the same rows, `report` keeps its result, in whatever order the rows are.
        deterministic="verify",
    )
    report = RecoverableSparkSubmitOperator(
        task_id="report",
        application=f"{APPLICATIONS}/report.py",
        inputs={"cleaned": clean.result("cleaned")},  # also makes `clean` upstream
        application_args=["--cleaned", "{input:cleaned}", "--out", "{output:report}"],
        outputs=["report"],
    )
