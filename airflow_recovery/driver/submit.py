"""Values for the spark-submit of a region: its environment and its Spark settings (without credentials)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.store.s3_scheme import encryption_of
from airflow_recovery.store.scheme import StoreSpec

APPLICATION = str(Path(__file__).with_name("main.py"))
"""The application file of every region."""

QUIET_CONF = {"spark.ui.showConsoleProgress": "false"}
"""Progress is our own line in the log."""

_CREDENTIALS = ",".join(
    (
        # The driver's own environment. Spark takes the same variables into its Hadoop configuration, which is how
        # executors get them (the next two): over the wire, and neither in a setting nor on a command line.
        # By its name in the first AWS SDK, the only one that the Hadoop of Spark 3.5 knows; later ones translate it.
        "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
    )
)

_BOUNDS = {"retry.throttle.limit": "8"}
"""A server that only says "slow down" is asked 54 times within about a minute; then the attempt fails, and recovery's
own pauses follow. s3a's default doubles its pause twenty times: it would wait for a day, and look alive."""


def submit_environment(base: Mapping[str, str], *, driver_is_here: bool = True) -> dict[str, str]:
    """``base`` (the task's environment), so that the driver runs this very Python, and ``spark-submit`` is found.

    A ``PYSPARK_PYTHON`` or a ``spark-submit`` that ``base`` has already wins; the conf ``spark.pyspark.python`` wins
    over both. Spark's wheel puts its ``spark-submit`` beside the Python that it was installed for, and that one asks
    ``PYSPARK_PYTHON`` where its Spark is. YARN passes both variables on to a driver on a node, the one for drivers even
    over what the cluster's own settings say: none is set where the driver is not here.
    """
    environment = dict(base)
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if driver_is_here:
        environment.setdefault("PYSPARK_DRIVER_PYTHON", environment["PYSPARK_PYTHON"])
    own_programs = str(Path(sys.executable).parent)
    if shutil.which("spark-submit", path=environment.get("PATH", "")) is None:
        environment["PATH"] = ":".join(folder for folder in (environment.get("PATH"), own_programs) if folder)
    return environment


def s3a_conf(store: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The ``spark.hadoop.fs.s3a.*`` settings with which Spark reaches ``store``; empty where it is not on S3.

    Where ``environment`` holds credentials: that they are found there, never the credentials themselves, since settings
    are visible in ``ps``, in the Spark UI and in logs. Where it holds none, Hadoop's own configuration decides (the
    machine's role, if that says nothing). The hadoop-aws jars must be on the class path already.
    """
    if not store.uri.startswith(("s3://", "s3a://")):
        return {}
    conf = dict(_BOUNDS)
    if environment.get("AWS_ACCESS_KEY_ID"):
        conf["aws.credentials.provider"] = _CREDENTIALS
    endpoint = store.endpoint_url or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    region = store.region_name or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if endpoint:
        conf["endpoint"] = endpoint
        conf["path.style.access"] = "true"
        conf["connection.ssl.enabled"] = "false" if endpoint.startswith("http://") else "true"
    if region:
        conf["endpoint.region"] = region
    encryption = encryption_of(store)
    if encryption is not None:
        conf |= encryption.s3a_settings()
    return {f"spark.hadoop.fs.s3a.{key}": value for key, value in conf.items()}
