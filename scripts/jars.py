"""Jars that the set-up fetches into the virtual environment, for the demo, the soak and the tests."""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_recovery.errors import ConfigurationError


def fetched_jars(name: str, what: str, artifact: str, option: str) -> Path:
    """The folder ``<name>-jars`` in this virtual environment: ``what`` is fetched by ``scripts/setup.sh <option>``.

    Raises `ConfigurationError` where there is no jar of ``artifact`` in it.
    """
    folder = Path(sys.prefix) / f"{name}-jars"
    if not any(folder.glob(f"{artifact}-*.jar")):
        raise ConfigurationError(
            f"Expected {what} in {folder}, found no {artifact} there. Run scripts/setup.sh {option}."
        )
    return folder


def s3a_jars() -> Path:
    """The folder of Spark's jars for ``s3a://``. Raises `ConfigurationError` if it is not there."""
    return fetched_jars("s3a", "Spark's jars for S3", "hadoop-aws", "--s3a")


def class_path_variables() -> dict[str, str]:
    """Variables of the environment that put the jars at the end of the class path of each JVM of Spark's, here.

    Not by ``--packages``, which would ask Ivy in each application, nor by ``--jars``, which would copy them; and not in
    front, by `class_path_conf`: an archive of Spark's classes fits where the class path begins with Spark's own jars.
    """
    return {"SPARK_DIST_CLASSPATH": f"{s3a_jars()}/*"}


def class_path_conf() -> dict[str, str]:
    """The settings that put the jars on the class paths of a driver and of executors that have another environment."""
    return {f"spark.{side}.extraClassPath": f"{s3a_jars()}/*" for side in ("driver", "executor")}
