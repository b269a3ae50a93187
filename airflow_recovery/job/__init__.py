"""What a user declares: a job, its vertices with their result types and parameters, and the fingerprint of each.

A module that declares a job is plain Python: it is imported by Airflow when a DAG file is parsed, by the Spark driver
on a cluster that has no Airflow, and by a unit test. So this package may import neither Airflow nor, when it is
imported, pyspark or boto3. It knows nothing of attempts, journals or stores. What a user declares for channels is in
`airflow_recovery.streaming`.
"""

from airflow_recovery.job.context import RegionContext, RunLike, Subtask
from airflow_recovery.job.declaration import Job, job
from airflow_recovery.job.fingerprint import vertex_fingerprint
from airflow_recovery.job.handed_splits import DateSplits, FileSplit, FileSplits, KeyRangeSplits, Splits
from airflow_recovery.job.loading import load_job
from airflow_recovery.job.local import LocalResults, run_local
from airflow_recovery.job.parallelism import per_file, same_as
from airflow_recovery.job.published_results import published
from airflow_recovery.job.sources import (
    Dates,
    EnumeratedBy,
    FilePattern,
    KeyRanges,
    SplitSource,
    dates,
    enumerated_by,
    files,
    key_ranges,
)
from airflow_recovery.job.versions import Version
from airflow_recovery.job.vertex import Vertex, VertexInput, VertexKind

__all__ = [
    "DateSplits",
    "Dates",
    "EnumeratedBy",
    "FilePattern",
    "FileSplit",
    "FileSplits",
    "Job",
    "KeyRangeSplits",
    "KeyRanges",
    "LocalResults",
    "OutputMode",
    "RegionContext",
    "RunLike",
    "SplitSource",
    "Splits",
    "Subtask",
    "Version",
    "Vertex",
    "VertexInput",
    "VertexKind",
    "dates",
    "enumerated_by",
    "files",
    "job",
    "key_ranges",
    "load_job",
    "per_file",
    "published",
    "run_local",
    "same_as",
    "vertex_fingerprint",
]
