"""One Airflow on several machines for all of these tests: CeleryExecutor, two schedulers, two workers, PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from folder_end import is_last_of
from machines_run import MachinesPipeline
from pipeline import AWS_CONNECTION, environment

from airflow_recovery.driver import StoreSpec
from airflow_recovery.driver.submit import store_conf
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from airflow_recovery.testing.spark_cluster import connect_server
from scripts.jars import class_path_variables

HERE = Path(__file__).parent
INTEGRATION = HERE.parent / "integration"

LIMITS = {
    # A task that the broker has lost is sent again after this time. So is a task whose machine is still starting, as
    # often as it takes.
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__NUM_STUCK_IN_QUEUE_RETRIES": "1000",
    # A task that can't be sent is tried again after this time.
    "AIRFLOW__CELERY__OPERATION_TIMEOUT": "60",
}

PRELOADS = """
import sys

__all__ = []
if "celery" in sys.argv:
    from airflow_recovery.task.preloading import preload

    preload()
"""
"""Airflow's local settings, as docs/machines.md has them."""


SHARED = pytest.StashKey[ExitStack]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if SHARED in item.config.stash and is_last_of(HERE, item, nextitem):
        item.config.stash[SHARED].close()


@pytest.fixture(scope="session")
def pipeline(
    pytestconfig: pytest.Config,
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
) -> Iterator[MachinesPipeline]:
    with ExitStack() as stack:
        pytestconfig.stash[SHARED] = stack
        server = start_s3_server(s3_server_names[-1])
        yield stack.enter_context(open_pipeline(tmp_path_factory.mktemp("machines"), server))


@pytest.fixture
def workers(pipeline: MachinesPipeline) -> Iterator[list[str]]:
    """Those that a test has added. They are gone afterwards, and all that `pipeline` began with runs."""
    airflow = pipeline.airflow
    added: list[str] = []
    yield added
    for name in added:
        if name in airflow.processes:
            airflow.kill(name)
    airflow.start()


@contextmanager
def open_pipeline(folder: Path, server: S3Server) -> Iterator[MachinesPipeline]:
    """Journal and results on S3, the one disk that the machines share."""
    bucket = f"machines-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    results = f"s3://{bucket}/results"
    conf = {
        **store_conf(StoreSpec(results, server.endpoint_url, REGION), os.environ),
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in class_path_variables().items():
            patch.setenv(variable, value)
        with connect_server(conf=conf) as spark:
            env = environment(folder, bucket, spark.url) | LIMITS
            extra = {"region_name": REGION, "endpoint_url": server.endpoint_url}
            connection = {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": extra}
            env |= {
                "AIRFLOW__RECOVERY__RESULTS": results,
                f"AIRFLOW_CONN_{AWS_CONNECTION.upper()}": json.dumps(connection),
            }
            dags = folder / "dags"
            shutil.copytree(HERE / "dags", dags)
            shutil.copy(INTEGRATION / "dags" / "integration_jobs" / "gates.py", dags / "machine_jobs")
            airflow = LocalAirflow(
                folder / "airflow", dags, database="postgresql", schedulers=2, workers=2, env=env, parallelism=4
            )
            settings = airflow.home / "config" / "airflow_local_settings.py"
            settings.parent.mkdir(parents=True)
            settings.write_text(PRELOADS)
            with airflow:
                yield MachinesPipeline(airflow, server, bucket, folder)
