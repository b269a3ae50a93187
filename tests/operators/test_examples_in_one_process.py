"""`dags/examples` by `dag.test()`: an attempt that fails, and a result that its reader finds lost, in one run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from dataproc_server import DataprocServer, google_provider, use_google_provider
from emr_cluster import EmrServer
from job_servers import DatabricksServer, JobServer, LivyServer
from test_dag_test import BACKEND, environment

from airflow_recovery.testing.local_airflow.sqlite import template_database
from airflow_recovery.testing.patience import HANG_S

pytestmark = pytest.mark.airflow

EXAMPLES = Path(__file__).parents[2] / "dags" / "examples"
RUN = """
import json, runpy, sys
from datetime import datetime, timezone
dag = runpy.run_path(sys.argv[1])["dag"]
run = dag.test(logical_date=datetime(2024, 1, 2, tzinfo=timezone.utc))
print(json.dumps({"run": run.state, "states": {one.task_id: one.state for one in run.get_task_instances()}}))
"""
FAILS_ONCE = """
import argparse, pathlib, shutil, sys

parser = argparse.ArgumentParser()
for name in ("--day", "--in", "--out"):
    parser.add_argument(name)
given = {name: value and value.removeprefix("file://") for name, value in vars(parser.parse_args()).items()}
flag = pathlib.Path(__file__ + ".failed")
if not flag.exists():
    flag.touch()
    if given["in"]:
        shutil.rmtree(given["in"])
    sys.exit("broken")
rows = "".join(file.read_text() for file in pathlib.Path(given["in"]).iterdir()) if given["in"] else given["day"]
pathlib.Path(given["out"]).mkdir(parents=True)
(pathlib.Path(given["out"]) / "part-0.csv").write_text(rows)
"""
"""Both of its applications: the first attempt fails, and that of the reader deletes what it reads before."""


def of_server(server: type[JobServer], connection: str) -> Any:
    """The environment of the tasks, and what they have submitted."""

    @contextmanager
    def start() -> Iterator[tuple[dict[str, str], Collection[Any]]]:
        with server() as service:
            yield {f"AIRFLOW_CONN_{connection}": service.connection()}, service.jobs

    return start


@contextmanager
def of_emr() -> Iterator[tuple[dict[str, str], Collection[Any]]]:
    with EmrServer() as server:
        yield {"AIRFLOW_CONN_AWS_DEFAULT": server.connection()}, server.jobs


@contextmanager
def of_dataproc() -> Iterator[tuple[dict[str, str], Collection[Any]]]:
    provider = google_provider()
    if provider is None:
        pytest.skip("Airflow's provider of Google is not installed: scripts/setup.sh --drill")
    use_google_provider(provider)
    with TemporaryDirectory() as folder, DataprocServer(Path(folder)) as server:
        path = os.pathsep.join(each for each in (os.environ.get("PYTHONPATH"), str(provider)) if each)
        connection = {"AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": server.connection(), "PYTHONPATH": path}
        yield {**connection, **server.environment()}, server.jobs


@pytest.mark.drill
@pytest.mark.parametrize(
    ("example", "provider", "service"),
    [
        ("livy", "airflow.providers.apache.livy", of_server(LivyServer, "LIVY_DEFAULT")),
        ("databricks", "airflow.providers.databricks", of_server(DatabricksServer, "DATABRICKS_DEFAULT")),
        ("emr", "airflow.providers.amazon", of_emr),
        ("emr_steps", "airflow.providers.amazon", of_emr),
        ("dataproc", "", of_dataproc),
    ],
)
def test_a_failure_and_a_lost_result_of_a_service_in_one_run(
    tmp_path: Path, example: str, provider: str, service: Any
) -> None:
    if provider and find_spec(provider) is None:
        pytest.skip(f"{provider} is not installed")
    code = tmp_path / "code"
    code.mkdir()
    for name in ("clean.py", "report.py"):
        (code / name).write_text(FAILS_ONCE)
    with service() as (settings, submitted):
        env = environment(tmp_path, AIRFLOW__STATE_STORE__BACKEND=BACKEND, EXAMPLE_CODE=str(code), **settings)
        (tmp_path / "airflow.db").write_bytes(template_database(environment(tmp_path)).read_bytes())
        file = shutil.copy(EXAMPLES / f"{example}.py", tmp_path / "dags")
        command = [sys.executable, "-c", RUN, str(file)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        found = json.loads(done.stdout.splitlines()[-1])
        assert found == {"run": "success", "states": {"clean": "success", "report": "success"}}
        (report,) = (tmp_path / "results").rglob("report/*/report/part-0.csv")
        assert report.read_text() == "2024-01-02"
        told = done.stdout + done.stderr
        assert "clean@1: the application failed" in told
        assert "Attempt 3 of clean claimed" in told, "its result was lost, and it made it again"
        assert len(submitted) == 5
