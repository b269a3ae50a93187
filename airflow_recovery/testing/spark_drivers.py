"""Finding, and killing, the Spark driver that a task of a local Airflow has submitted, or a run's own Spark."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def driver_of(name: str, airflow_home: Path) -> psutil.Process | None:
    """The JVM of the Spark application ``name`` that a task of this Airflow submitted, once its driver program runs.

    ``name`` may also be the program, as it was submitted: any word of the command line.
    `None` before that, so poll. An application of the same name of another Airflow on this machine is not it.
    """
    return next(
        (process for process in psutil.process_iter() if _is_submitted(process, name, airflow_home, has_program=True)),
        None,
    )


def server_of(name: str, airflow_home: Path) -> psutil.Process | None:
    """The JVM of a run's own Spark, a Spark Connect server named ``<dag id>.<group id>``; else `None`."""
    return next((process for process in psutil.process_iter() if _is_submitted(process, name, airflow_home)), None)


def kill_9(process: psutil.Process) -> None:
    """``kill -9``: no hook of the process runs."""
    os.kill(process.pid, signal.SIGKILL)


def _is_submitted(process: psutil.Process, name: str, airflow_home: Path, *, has_program: bool = False) -> bool:
    try:
        command = process.cmdline()
        return (
            "org.apache.spark.deploy.SparkSubmit" in command
            and "org.apache.spark.launcher.Main" not in command
            and name in command
            and process.environ().get("AIRFLOW_HOME") == str(airflow_home)
            and (not has_program or bool(process.children()))
        )
    except psutil.Error:  # ended meanwhile, or not ours to look at
        return False
