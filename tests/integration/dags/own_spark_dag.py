"""`own_spark`: the job of `kept`, on a Spark of the run's own. `own_spark_existing`: so are existing applications."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_recovery.operators import (
    RecoverableSparkSubmitOperator,
    RecoveryPublishOperator,
    SparkJobTaskGroup,
    StopSparkOperator,
)

GATED = Path(__file__).parent / "applications" / "gated.py"
LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")

SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}

with DAG("own_spark", schedule=None):
    SparkJobTaskGroup("g", job="integration_jobs.kept:keeping", conn_id="submit", spark="per-run", conf=SMALL)


def copying(name: str, source: Any) -> RecoverableSparkSubmitOperator:
    return RecoverableSparkSubmitOperator(
        task_id=name,
        conn_id="submit",
        spark="per-run",
        conf=SMALL,
        application=str(GATED),
        inputs={"source": source},
        outputs=["copy"],
        application_args=["{input:source}", "{output:copy}", "{{ dag_run.conf['gates'] }}", name],
    )


with DAG("own_spark_existing", schedule=None):
    clean = copying("clean", f"{LAKE}/gated.csv")
    readers = [copying(name, clean.result("copy")) for name in ("left", "right")]
    (
        readers
        >> RecoveryPublishOperator(task_id="publish")
        >> StopSparkOperator(task_id="stop_spark", conn_id="submit").as_teardown()
    )
