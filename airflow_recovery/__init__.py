"""Fine-grained recovery of Spark pipelines in Apache Airflow, as Flink does it.

This is what a job's module imports, so it must load without Airflow, pyspark or boto3. The Airflow side is in
`airflow_recovery.operators`, `airflow_recovery.sensors` and `airflow_recovery.hooks`.

The name ``job`` is the function, although a package of that name holds it: ``from airflow_recovery.job import ...``
reaches into the package.
"""

from airflow_recovery.errors import (
    ConfigurationError,
    FingerprintError,
    JobDefinitionError,
    RecoveryError,
    RegionFailed,
    UserCodeError,
)
from airflow_recovery.job import FilePattern, FileSplit, FileSplits, Job, RegionContext, files, job, load_job
from airflow_recovery.topology.result_type import BLOCKING, PIPELINED, ResultType

__version__ = "0.1.0"

__all__ = [
    "BLOCKING",
    "PIPELINED",
    "ConfigurationError",
    "FilePattern",
    "FileSplit",
    "FileSplits",
    "FingerprintError",
    "Job",
    "JobDefinitionError",
    "RecoveryError",
    "RegionContext",
    "RegionFailed",
    "ResultType",
    "UserCodeError",
    "files",
    "job",
    "load_job",
]
