"""For each Spark of the matrix: the ways to reach it, each as a DAG of its own."""

from __future__ import annotations

import json
import os
from typing import Any

from airflow.sdk import DAG
from existing import two_applications

from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.planning.restart_strategy import FixedDelay

LAKE = os.environ.get("INTEGRATION_LAKE", "file:///lake")
HADOOP = os.environ.get("MATRIX_HADOOP", "/hadoop")


def declared(dag_id: str, job: str = "matrix_jobs.relay:relay", **options: Any) -> None:
    with DAG(dag_id, schedule=None):
        SparkJobTaskGroup("g", job=job, **options)


def existing(dag_id: str, **options: Any) -> None:
    with DAG(dag_id, schedule=None):
        two_applications(LAKE, report="report_by_spark.py", outputs=["report"], **options)


for series, spark in json.loads(os.environ.get("MATRIX_SPARKS", "{}")).items():
    # As a platform team gives it: a spark-submit, and a Python that has this pyspark alone.
    python = {
        "SPARK_HOME": spark["home"],
        "PYSPARK_PYTHON": spark["python"],
        "PYSPARK_DRIVER_PYTHON": spark["python"],
        "PYTHONPATH": "",
    }
    submitted: dict[str, Any] = {"conn_id": f"submit_{series}", "spark_binary": spark["submit"], "env_vars": python}
    declared(f"declared_{series}", **submitted)
    existing(f"drop_in_{series}", **submitted)

    hadoop = {"HADOOP_CONF_DIR": HADOOP, "SPARK_CONF_DIR": HADOOP}
    on_yarn = submitted | {"env_vars": python | hadoop, "yarn_track_via_rm_api": True}
    declared(f"declared_{series}_yarn", **on_yarn)
    existing(f"drop_in_{series}_yarn", **on_yarn)

    in_pods = submitted | {"track_driver_via_k8s_api": True}
    declared(f"declared_{series}_kubernetes", **in_pods)
    existing(f"drop_in_{series}_kubernetes", **in_pods)

    declared(f"connect_{series}", conn_id=f"connect_{series}")

    # The provider refuses `env_vars` there.
    declared(f"declared_{series}_cluster", **(submitted | {"env_vars": None}))

    # Streams need pyarrow and pandas, which a stock image has not.
    streaming = python | dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), spark["streaming_python"])
    declared(
        f"streams_{series}",
        "integration_jobs.streams:brief",
        restart_strategy=FixedDelay(attempts=20, delay_s=0.1),
        conf={"spark.cores.max": "1"},  # of a standalone cluster's: an application takes all that it finds
        **(submitted | {"env_vars": streaming}),
    )
