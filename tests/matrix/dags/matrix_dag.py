"""For each Spark of the matrix: a declared job, and two applications that know nothing of recovery."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator, SparkJobTaskGroup

APPLICATIONS = Path(__file__).parent / "matrix_applications"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

for series, spark in json.loads(os.environ.get("MATRIX_SPARKS", "{}")).items():
    # As a platform team gives it: a spark-submit, and a Python that has this pyspark alone.
    submitted: dict[str, Any] = {
        "conn_id": f"submit_{series}",
        "spark_binary": spark["submit"],
        "env_vars": {
            "SPARK_HOME": spark["home"],
            "PYSPARK_PYTHON": spark["python"],
            "PYSPARK_DRIVER_PYTHON": spark["python"],
        },
    }
    with DAG(f"declared_{series}", schedule=None):
        SparkJobTaskGroup("g", job="matrix_jobs.relay:relay", **submitted)

    with DAG(f"connect_{series}", schedule=None):
        SparkJobTaskGroup("g", job="matrix_jobs.relay:relay", conn_id=f"connect_{series}")

    with DAG(f"drop_in_{series}", schedule=None):
        clean = RecoverableSparkSubmitOperator(
            task_id="clean",
            application=str(APPLICATIONS / "clean.py"),
            inputs={"raw": f"{LAKE}/raw.csv"},
            outputs=["cleaned"],
            application_args=["{input:raw}", "{output:cleaned}"],
            **submitted,
        )
        report = RecoverableSparkSubmitOperator(
            task_id="report",
            application=str(APPLICATIONS / "report.py"),
            inputs={"cleaned": clean.result("cleaned")},
            outputs=["report"],
            application_args=["{input:cleaned}", "{output:report}"],
            **submitted,
        )
        report >> RecoveryPublishOperator(task_id="publish")
