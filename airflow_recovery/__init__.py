"""Fine-grained recovery of Spark pipelines in Apache Airflow, as Flink does it.

This is what a job's module imports, so it must load without Airflow, pyspark or boto3. What a job with channels
declares besides is in `airflow_recovery.streaming`. The Airflow side is in `airflow_recovery.operators`,
`airflow_recovery.sensors` and `airflow_recovery.hooks`.

The name ``job`` is the function, although a package of that name holds it: ``from airflow_recovery.job import ...``
reaches into the package.
"""

from airflow_recovery.driver.memory_policy import RaiseMemory
from airflow_recovery.errors import (
    ConfigurationError,
    FingerprintError,
    JobDefinitionError,
    RecoveryError,
    RegionFailed,
    UserCodeError,
)
from airflow_recovery.job import (
    FilePattern,
    FileSplit,
    FileSplits,
    Job,
    RegionContext,
    Subtask,
    Version,
    dates,
    enumerated_by,
    files,
    job,
    key_ranges,
    load_job,
    per_file,
    published,
    same_as,
)
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.failover_strategy import FailoverStrategy, RecoveryMode
from airflow_recovery.model.result_type import (
    BLOCKING,
    BLOCKING_PERSISTENT,
    CACHED,
    CACHED_MEMORY_ONLY,
    PIPELINED,
    ResultType,
)
from airflow_recovery.model.retention import Retention
from airflow_recovery.model.split import Split
from airflow_recovery.planning.restart_strategy import ExponentialDelay, FailureRate, FixedDelay, NoRestart
from airflow_recovery.version import __version__

__all__ = [
    "BLOCKING",
    "BLOCKING_PERSISTENT",
    "CACHED",
    "CACHED_MEMORY_ONLY",
    "PIPELINED",
    "ConfigurationError",
    "Determinism",
    "ExponentialDelay",
    "FailoverStrategy",
    "FailureRate",
    "FilePattern",
    "FileSplit",
    "FileSplits",
    "FingerprintError",
    "FixedDelay",
    "Job",
    "JobDefinitionError",
    "NoRestart",
    "RaiseMemory",
    "RecoveryError",
    "RecoveryMode",
    "RegionContext",
    "RegionFailed",
    "ResultType",
    "Retention",
    "Split",
    "Subtask",
    "UserCodeError",
    "Version",
    "__version__",
    "dates",
    "enumerated_by",
    "files",
    "job",
    "key_ranges",
    "load_job",
    "per_file",
    "published",
    "same_as",
]
