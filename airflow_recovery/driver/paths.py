"""The border between our URIs and Spark's paths.

Ours are literal (``%`` and spaces mean themselves) and name S3 as ``s3://``; Spark names it ``s3a://``, expands glob
characters in what it is given, and percent-encodes what it gives back.
"""

from __future__ import annotations

from urllib.parse import unquote

from airflow_recovery.globs import escaped
from airflow_recovery.locations import comparable


def spark_path(uri: str) -> str:
    """The name that Spark writes to for our ``uri``: ``s3://`` becomes ``s3a://``, everything else stays."""
    return "s3a://" + uri[len("s3://") :] if uri.startswith("s3://") else uri


def spark_glob(uri: str) -> str:
    """The name that Spark reads for our ``uri``: as `spark_path`, with the glob characters taken literally."""
    return escaped(spark_path(uri))


def decoded(path: str) -> str:
    """One form for the names of one file: ours, and those that ``DataFrame.inputFiles`` gives (percent-encoded)."""
    return comparable(unquote(path))
