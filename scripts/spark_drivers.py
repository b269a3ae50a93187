"""Finding, and killing, the Spark driver that a task of a local Airflow has submitted, or a run's own Spark."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def driver_of(name: str, airflow_home: Path) -> psutil.Process | None:
    """The JVM of the Spark application ``name`` that a task of this Airflow submitted, once its driver program runs.

    ``name`` may also be the program, as it was submitted: any word of the command line.
    `None` before that, so poll. An application of the same name of another Airflow on this machine is not it.
    """
    return next(drivers_of(airflow_home, name), None)


def drivers_of(airflow_home: Path, name: str | None = None) -> Iterator[psutil.Process]:
    """As `driver_of`: all of that name, or of any."""
    for process in _submitted(airflow_home, name):
        with suppress(psutil.Error):
            if process.children():
                yield process


def server_of(name: str, airflow_home: Path) -> psutil.Process | None:
    """The JVM of a run's own Spark, a Spark Connect server named ``<dag id>.<group id>``; else `None`."""
    return next(_submitted(airflow_home, name), None)


def kill_9(process: psutil.Process) -> None:
    """``kill -9``: no hook of the process runs."""
    os.kill(process.pid, signal.SIGKILL)


def _submitted(airflow_home: Path, name: str | None) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # ended meanwhile, or not ours to look at
            command = process.cmdline()
            if (
                "org.apache.spark.deploy.SparkSubmit" in command
                and "org.apache.spark.launcher.Main" not in command
                and (name is None or name in command)
                and process.environ().get("AIRFLOW_HOME") == str(airflow_home)
            ):
                yield process
