"""Values for the spark-submit of a region: its environment and its Spark settings (without credentials)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.store.schemes import scheme_for

APPLICATION = str(Path(__file__).with_name("main.py"))
"""The application file of every region."""

QUIET_CONF = {"spark.ui.showConsoleProgress": "false"}
"""Progress is our own line in the log."""


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


def store_conf(store: StoreSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The settings with which Spark reaches ``store``. No credentials; empty where it needs none of ours.

    ``environment``: that of the driver.
    """
    scheme = scheme_for(store.uri)
    return {} if scheme is None else scheme.spark_conf(store, environment)
