"""Finding, and killing, the Spark driver that a task of a local Airflow has submitted."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def driver_of(name: str, airflow_home: Path) -> psutil.Process | None:
    """The JVM of the Spark application ``name`` that a task of this Airflow submitted, once its driver program runs.

    `None` before that, so poll. An application of the same name of another Airflow on this machine is not it.
    """
    return next((process for process in psutil.process_iter() if _is_driver(process, name, airflow_home)), None)


def kill_9(process: psutil.Process) -> None:
    """``kill -9``: no hook of the process runs."""
    os.kill(process.pid, signal.SIGKILL)


def _is_driver(process: psutil.Process, name: str, airflow_home: Path) -> bool:
    try:
        command = process.cmdline()
        return (
            "org.apache.spark.deploy.SparkSubmit" in command
            and "org.apache.spark.launcher.Main" not in command
            and name in command
            and process.environ().get("AIRFLOW_HOME") == str(airflow_home)
            and bool(process.children())
        )
    except psutil.Error:  # ended meanwhile, or not ours to look at
        return False
