"""Spark's jars for ``s3a://``, as ``scripts/setup.sh --s3a`` has fetched them: for the demo and the tests."""

from __future__ import annotations

from pathlib import Path

from airflow_recovery.testing.fetched_jars import fetched_jars


def s3a_jars() -> Path:
    """The folder of the jars, in this virtual environment. Raises `ConfigurationError` where it is not there."""
    return fetched_jars("s3a", "Spark's jars for S3", "hadoop-aws", "--s3a")


def write_spark_conf(folder: Path) -> Path:
    """Make ``folder`` a ``SPARK_CONF_DIR`` with the jars on every class path; the folder.

    Not by ``--packages``, which would ask Ivy in each application, nor by ``--jars``, which would copy them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{key} {value}\n" for key, value in class_path_conf().items())
    (folder / "spark-defaults.conf").write_text(text)
    return folder


def class_path_conf() -> dict[str, str]:
    """The settings that put the jars on the class paths of a driver and of executors on this machine."""
    return {f"spark.{side}.extraClassPath": f"{s3a_jars()}/*" for side in ("driver", "executor")}
