"""One Airflow with PostgreSQL and two schedulers for a file of tests. Runs are handled as in the integration tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline import AWS_CONNECTION, Pipeline, environment, small_connect_server

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY

HERE = Path(__file__).parent
INTEGRATION = HERE.parent / "integration"
API_DOWN_S = 10.0
API_DOWN_IN_A_DRILL_S = 60.0
IMPATIENT = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "3",
    "AIRFLOW__RECOVERY__PREVIOUS_WORKER_TIMEOUT": "30s",
}
"""Schedulers, supervisors and drivers are killed and frozen here. A part that is only slow may count as dead, too: what
these tests assert holds for whatever is killed."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--seed"), metafunc.config.getoption("--drill") or 1
        metafunc.parametrize("seed", range(first, first + count), ids=lambda each: f"seed={each}")


@pytest.fixture(scope="session")
def api_down_s(pytestconfig: pytest.Config) -> float:
    """How long the API server is away: in a drill longer than Airflow's tasks wait for it."""
    return API_DOWN_IN_A_DRILL_S if pytestconfig.getoption("--drill") else API_DOWN_S


@pytest.fixture(scope="module")
def connect_url() -> Iterator[str]:
    with small_connect_server() as running:
        yield running.url


@pytest.fixture(scope="module")
def pipeline(
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
    connect_url: str,
) -> Iterator[Pipeline]:
    """The journal is on versitygw, where it is installed."""
    folder = tmp_path_factory.mktemp("kills")
    server = start_s3_server(s3_server_names[-1])
    bucket = f"kills-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    env = environment(folder, bucket, connect_url) | IMPATIENT
    # Not in the database, which will be lost.
    extra = {"region_name": REGION, "endpoint_url": server.endpoint_url}
    connection = {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": extra}
    env[f"AIRFLOW_CONN_{AWS_CONNECTION.upper()}"] = json.dumps(connection)
    dags = folder / "dags"
    shutil.copytree(HERE / "dags", dags)
    shutil.copy(INTEGRATION / "dags" / "integration_jobs" / "gates.py", dags / "relay_jobs")
    with LocalAirflow(folder / "airflow", dags, database="postgresql", schedulers=2, env=env) as airflow:
        yield Pipeline(airflow, server, bucket, folder)


@pytest.fixture(scope="module")
def undisturbed(pipeline: Pipeline, connect_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each result where nothing happens."""
    command = [sys.executable, str(HERE / "undisturbed.py"), connect_url]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(pipeline.folder / "dags")])}
    said = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S).stdout
    return {name: [tuple(row) for row in rows] for name, rows in json.loads(said).items()}
