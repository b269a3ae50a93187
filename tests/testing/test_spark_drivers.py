"""The driver of one application of one Airflow, among all processes of a machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_recovery.testing.patience import HANG_S
from scripts.spark_drivers import driver_of, kill_9

SUBMIT = "org.apache.spark.deploy.SparkSubmit"
NAME = "dag.region@1"
# Says that it is there once its driver program runs.
PROGRAM = """
import subprocess, sys, time
if "childless" not in sys.argv:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(home: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """What looks like a submitted application, until the end of the block."""
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "AIRFLOW_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == "up\n"
        yield started
    finally:
        started.kill()
        started.communicate()


def test_the_driver_is_found_and_killed(tmp_path: Path) -> None:
    with process(tmp_path, SUBMIT, "--name", NAME) as running:
        driver = driver_of(NAME, tmp_path)
        assert driver is not None
        assert driver.pid == running.pid
        kill_9(driver)
        assert running.wait(HANG_S) == -9
    assert driver_of(NAME, tmp_path) is None


@pytest.mark.parametrize(
    "arguments",
    [
        (SUBMIT, "--name", "dag.region@2"),
        ("--name", NAME),
        ("org.apache.spark.launcher.Main", SUBMIT, "--name", NAME),
        (SUBMIT, "--name", NAME, "childless"),
    ],
    ids=["another attempt", "no spark-submit", "the launcher", "its driver program does not run yet"],
)
def test_what_is_not_it_is_not_found(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with process(tmp_path, *arguments):
        assert driver_of(NAME, tmp_path) is None


def test_one_of_another_airflow_is_not_found(tmp_path: Path) -> None:
    with process(tmp_path / "another", SUBMIT, "--name", NAME):
        assert driver_of(NAME, tmp_path) is None
