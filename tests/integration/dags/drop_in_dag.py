"""Two existing applications with recovery: a managed output, and one at the user's own URI; then a publish."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator

APPLICATIONS = Path(__file__).parent / "applications"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

with DAG("existing", schedule=None):
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        conn_id="submit",
        application=str(APPLICATIONS / "clean.py"),
        inputs={"raw": f"{LAKE}/raw.csv"},
        outputs=["cleaned"],
        application_args=["{input:raw}", "{output:cleaned}"],
    )
    report = RecoverableSparkSubmitOperator(
        task_id="report",
        conn_id="submit",
        application=str(APPLICATIONS / "report.py"),
        inputs={"cleaned": clean.result("cleaned")},
        outputs={"report": f"{LAKE}/report"},
        application_args=["{input:cleaned}", "{output:report}"],
    )
    report >> RecoveryPublishOperator(task_id="publish")
