"""Two existing Spark applications on Google Cloud Storage: their data, what they make, and the journal of both.

In `airflow.cfg`, with a connection of type `google_cloud_platform` and the extra `airflow-recovery[google]`::

    [recovery]
    journal = gs://my-journal/recovery
    results = gs://my-results/recovery
    gcp_conn_id = google_cloud_default

Spark has a connector, and credentials, of its own (docs/stores.md).
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator

APPLICATIONS = os.path.join(os.path.dirname(__file__), "applications")
LAKE = os.environ.get("FLIGHTS_LAKE", "gs://lake/flights")

with DAG(
    dag_id="google_cloud",
    schedule=None,
    start_date=datetime(2013, 1, 1, tzinfo=timezone.utc),
    tags=["airflow-recovery"],
    doc_md=__doc__,
) as dag:
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=f"{APPLICATIONS}/clean.py",
        inputs={"flights": f"{LAKE}/flights.csv"},
        application_args=["--flights", "{input:flights}", "--out", "{output:cleaned}"],
        outputs=["cleaned"],
    )
    report = RecoverableSparkSubmitOperator(
        task_id="report",
        application=f"{APPLICATIONS}/report.py",
        inputs={"cleaned": clean.result("cleaned")},
        application_args=["--cleaned", "{input:cleaned}", "--out", "{output:report}"],
        outputs=["report"],
    )
