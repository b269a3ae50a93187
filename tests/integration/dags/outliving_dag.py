"""`outliving`: an existing application by spark-submit in client mode. `outliving_job`: a declared job likewise."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator, SparkJobTaskGroup

GATED = Path(__file__).parent / "applications" / "gated.py"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

with DAG("outliving", schedule=None):
    copied = RecoverableSparkSubmitOperator(
        task_id="copied",
        conn_id="submit",
        application=str(GATED),
        inputs={"source": f"{LAKE}/gated.csv"},
        outputs=["copy"],
        application_args=["{input:source}", "{output:copy}", "{{ dag_run.conf['gates'] }}", "copied"],
    )
    copied >> RecoveryPublishOperator(task_id="publish")

with DAG("outliving_job", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.pair:pair", conn_id="submit")
