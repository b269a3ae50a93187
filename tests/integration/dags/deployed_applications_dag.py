"""The DAG whose applications `test_deploy_impact.py` changes under its runs: clean --> report."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator

HERE = Path(__file__).parent / "deployed_applications"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

with DAG("deployed_applications", schedule=None):
    clean = RecoverableSparkSubmitOperator(
        task_id="clean",
        application=str(HERE / "clean.py"),
        inputs={"raw": f"{LAKE}/deployed.csv"},
        outputs=["cleaned"],
        application_args=["{input:raw}", "{output:cleaned}", "{{ ds }}"],
        conn_id="submit",
    )
    RecoverableSparkSubmitOperator(
        task_id="report",
        application=str(HERE / "report.py"),
        inputs={"cleaned": clean.result("cleaned")},
        outputs=["report"],
        application_args=["{input:cleaned}", "{output:report}"],
        conn_id="submit",
    )
