from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pipeline import FLIGHTS, HERE, DagRun, Pipeline, environment, small_connect_server
from readme_blocks import write_dags

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import SECRET_KEY

EXAMPLES = HERE.parents[1] / "dags"
WEAKENED = {
    "AIRFLOW__STATE_STORE__BACKEND": "weakened.WeakenedBackend",
    "PYTHONPATH": os.pathsep.join(filter(None, [str(HERE / "backends"), os.environ.get("PYTHONPATH")])),
}


@pytest.fixture(scope="session")
def connect_url() -> Iterator[str]:
    with small_connect_server() as running:
        yield running.url


@pytest.fixture(scope="session")
def pipeline(
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
    connect_url: str,
) -> Iterator[Pipeline]:
    """The product as it is; on the first of the S3 servers."""
    folder = tmp_path_factory.mktemp("pipeline")
    with open_pipeline(folder, start_s3_server(s3_server_names[0]), connect_url) as up:
        yield up


@pytest.fixture(scope="session")
def weakened_pipeline(
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
    connect_url: str,
) -> Iterator[Pipeline]:
    """Without a door, or with a weaker one (`backends/weakened.py`); on the last of the S3 servers."""
    server = start_s3_server(s3_server_names[-1])
    with open_pipeline(tmp_path_factory.mktemp("weakened"), server, connect_url, WEAKENED) as up:
        yield up


@pytest.fixture(scope="session")
def undisturbed(pipeline: Pipeline) -> DagRun:
    """A run of `diamond` in which nothing happens."""
    run = pipeline.run("diamond", name="undisturbed").start()
    journal = run.ends()
    journal.check()
    assert set(journal.executions().values()) == {1}
    return run


@pytest.fixture(scope="session")
def finished(pipeline: Pipeline) -> DagRun:
    """A run of `diamond` for tests that disturb it after its end, and leave it repaired. They compare with before."""
    run = pipeline.run("diamond", name="finished").start()
    run.ends()
    return run


@contextmanager
def open_pipeline(
    folder: Path, server: S3Server, connect_url: str, extra: dict[str, str] | None = None
) -> Iterator[Pipeline]:
    bucket = f"integration-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    env = environment(folder, bucket, connect_url) | (extra or {})
    dags = copy_dags(folder)
    airflow = LocalAirflow(folder / "airflow", dags, env=env, recovery_backend=extra is None)
    # Only the connection may let a task in.
    for name in [each for each in airflow.env if each.startswith("AWS_") and each != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    with airflow:
        pipeline = Pipeline(airflow, server, bucket, folder)
        pipeline.set_aws_password(SECRET_KEY)
        yield pipeline


def copy_dags(folder: Path) -> Path:
    """The DAGs of these tests, with two of the repository's and the README's (`test_examples.py`)."""
    dags = folder / "dags"
    write_dags(dags, f"file://{folder}/{FLIGHTS}")
    shutil.copytree(HERE / "dags", dags, dirs_exist_ok=True)
    examples = dags / "examples"
    shutil.copytree(EXAMPLES / "applications", examples / "applications")
    for each in ("drop_in.py", "wait_for_delays.py"):
        shutil.copy(EXAMPLES / each, examples)
    return dags
