"""`outliving`: an existing application by spark-submit in client mode. `outliving_job`: a declared job likewise."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import RecoverableSparkSubmitOperator, RecoveryPublishOperator, SparkJobTaskGroup

GATED = Path(__file__).parent / "applications" / "gated.py"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")
LONG = timedelta(days=30)
LIMITS: dict[str, Any] = {"schedule": None, "dagrun_timeout": LONG, "default_args": {"execution_timeout": LONG}}
"""Of a run, and of a task. The tests do not wait for them."""

with DAG("outliving", **LIMITS):
    copied = RecoverableSparkSubmitOperator(
        task_id="copied",
        conn_id="submit",
        application=str(GATED),
        inputs={"source": f"{LAKE}/gated.csv"},
        outputs=["copy"],
        application_args=["{input:source}", "{output:copy}", "{{ dag_run.conf['gates'] }}", "copied"],
    )
    copied >> RecoveryPublishOperator(task_id="publish")

with DAG("outliving_job", **LIMITS):
    SparkJobTaskGroup("g", job="integration_jobs.pair:pair", conn_id="submit")
