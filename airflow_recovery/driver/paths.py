"""The border between our URIs and Spark's paths.

Ours are literal (``%`` and spaces mean themselves). Spark may name a store in another way (S3 is ``s3a://``), expands
glob characters in what it is given, and percent-encodes what it gives back.
"""

from __future__ import annotations

from urllib.parse import unquote

from airflow_recovery.globs import escaped
from airflow_recovery.locations import comparable
from airflow_recovery.store.schemes import scheme_for


def spark_path(uri: str) -> str:
    """The name that Spark writes to for our ``uri``: ``s3a://`` for ``s3://``, for example."""
    scheme = scheme_for(uri)
    return uri if scheme is None else scheme.spark_uri(uri)


def spark_glob(uri: str) -> str:
    """The name that Spark reads for our ``uri``: as `spark_path`, with the glob characters taken literally."""
    return escaped(spark_path(uri))


def decoded(path: str) -> str:
    """One form for the names of one file: those that ``DataFrame.inputFiles`` gives (percent-encoded)."""
    return comparable(unquote(path))


def as_decoded(uri: str) -> str:
    """The form in which `decoded` has the name that Spark gives to our ``uri``."""
    return comparable(spark_path(uri))
