"""Values for the spark-submit of a region: its environment and its Spark settings (without credentials)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.runtime.spec import StoreSpec

APPLICATION = str(Path(__file__).with_name("main.py"))
"""The application file of every region."""

QUIET_CONF = {"spark.ui.showConsoleProgress": "false"}
"""Progress is our own line in the log."""

_CREDENTIALS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)


def submit_environment(base: Mapping[str, str]) -> dict[str, str]:
    """``base`` (the task's environment), so that the driver runs this very Python, and ``spark-submit`` is found.

    A ``PYSPARK_PYTHON`` or a ``spark-submit`` that ``base`` has already wins; the conf ``spark.pyspark.python`` wins
    over both. Spark's wheel puts its ``spark-submit`` beside the Python that it was installed for.
    """
    found = dict(base)
    found.setdefault("PYSPARK_PYTHON", sys.executable)
    found.setdefault("PYSPARK_DRIVER_PYTHON", found["PYSPARK_PYTHON"])
    beside = str(Path(sys.executable).parent)
    if shutil.which("spark-submit", path=found.get("PATH", "")) is None:
        found["PATH"] = ":".join(each for each in (found.get("PATH"), beside) if each)
    return found


def s3a_conf(store: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The ``spark.hadoop.fs.s3a.*`` settings with which Spark reaches ``store``; empty where it is not on S3.

    Names where credentials are found (the environment of the process, else the role of its machine), never the
    credentials: settings are visible in ``ps``, in the Spark UI and in logs. The hadoop-aws jars must be on the class
    path already.
    """
    if not store.uri.startswith(("s3://", "s3a://")):
        return {}
    conf = {"aws.credentials.provider": _CREDENTIALS}
    endpoint = store.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = store.region_name or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf["endpoint"] = endpoint
        conf["path.style.access"] = "true"
        conf["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if region:
        conf["endpoint.region"] = region
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in conf.items()}
