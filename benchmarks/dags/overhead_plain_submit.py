"""The demo's job without recovery: one ``SparkSubmitOperator`` a region."""

from __future__ import annotations

import os

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from benchmarks.overhead_settings import CONF, LAKE, OUTPUT, plain_dag

APPLICATION = os.path.join(os.path.dirname(__file__), os.pardir, "applications", "plain_region.py")


def by_submit(region: str) -> SparkSubmitOperator:
    return SparkSubmitOperator(
        task_id=region,
        conn_id="spark_default",
        application=APPLICATION,
        application_args=[region, LAKE, f"{OUTPUT}/submit/{{{{ ds }}}}"],
        conf=CONF,
    )


dag = plain_dag("submit_plain", by_submit)
