"""The Airflow side of a run: a job as a task group, an existing Spark application as a drop-in, a publish at the end.

Turns Airflow's context into the values of the region protocol, runs the protocol, and turns its errors into Airflow's.
Decides nothing itself, and imports neither pyspark nor boto3 while a DAG file is parsed.
"""

import airflow_recovery.hooks.kubernetes_client  # noqa: F401 - before the Spark provider
from airflow_recovery.job import Version, published
from airflow_recovery.operators.any_operator import recoverable
from airflow_recovery.operators.publish import RecoveryPublishOperator
from airflow_recovery.operators.region import SparkRegionOperator
from airflow_recovery.operators.spark_jdbc import RecoverableSparkJDBCOperator
from airflow_recovery.operators.spark_submit import RecoverableSparkSubmitOperator
from airflow_recovery.operators.start_spark import StartSparkOperator
from airflow_recovery.operators.stop_spark import StopSparkOperator
from airflow_recovery.operators.task_group import SparkJobTaskGroup
from airflow_recovery.task.references import OutputReference

__all__ = [
    "OutputReference",
    "RecoverableSparkJDBCOperator",
    "RecoverableSparkSubmitOperator",
    "RecoveryPublishOperator",
    "SparkJobTaskGroup",
    "SparkRegionOperator",
    "StartSparkOperator",
    "StopSparkOperator",
    "Version",
    "published",
    "recoverable",
]
