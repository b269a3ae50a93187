"""What tests of a task's tries ask for: where its run is recorded, and what runs in place of Spark."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from job_tasks import Drivers

FAKE_SUBMIT = f"""#!{sys.executable}
import json, os, runpy, sys
arguments = sys.argv[1:]
at = next(i for i, each in enumerate(arguments) if each.endswith(".py") and arguments[i - 1] != "--py-files")
told = {{"options": arguments[:at], "application": arguments[at], "arguments": arguments[at + 1:]}}
told["env"] = dict(os.environ)
with open(os.environ["SUBMITTED"], "a") as log:
    log.write(json.dumps(told) + "\\n")
if not os.environ.get("SUBMIT_ONLY"):
    sys.argv = [arguments[at], *arguments[at + 1:]]
    runpy.run_path(arguments[at], run_name="__main__")
"""


@pytest.fixture
def recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Journal and results in a folder, and a connection to a local Spark. Returns the folder."""
    for name, value in {
        "AIRFLOW__RECOVERY__JOURNAL": f"file://{tmp_path}/journal",
        "AIRFLOW__RECOVERY__RESULTS": f"file://{tmp_path}/results",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> Drivers:
    """What every region's task of the test runs in place of a Spark application."""
    from job_tasks import Drivers  # imports Airflow

    found = Drivers()
    found.install(monkeypatch)
    return found


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `spark-submit` on the path that runs a Python application without Spark, and logs what it was given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "spark-submit"
    program.write_text(FAKE_SUBMIT)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    log = tmp_path / "submitted.jsonl"
    for name, value in {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "SUBMITTED": str(log),
        # Set by the operators in the task's process.
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }.items():
        monkeypatch.setenv(name, value)
    return log
