"""A YARN, an S3 server, and tasks on both."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tries_on_cluster import BUCKET, s3_environment
from yarn_cluster import YarnCluster, yarn_cluster
from yarn_tasks import MEMORY_MB, YarnTask

from airflow_recovery.testing import S3Server
from scripts.jars import class_path_conf


@pytest.fixture(scope="session")
def yarn_s3(one_s3_server: S3Server) -> S3Server:
    one_s3_server.create_bucket(BUCKET)
    return one_s3_server


@pytest.fixture(scope="session")
def yarn(yarn_s3: S3Server) -> Iterator[YarnCluster]:
    """Its nodes have the credentials of S3, as a machine with a role has; an executor starts when there is work."""
    credentials = {f"spark.yarn.appMasterEnv.{name}": value for name, value in s3_environment(yarn_s3).items()}
    small = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "1",
        "spark.executor.instances": "0",
        "spark.ui.enabled": "false",
    }
    with yarn_cluster(memory_mb=MEMORY_MB, spark_conf={**class_path_conf(), **credentials, **small}) as running:
        yield running


@pytest.fixture
def yarn_task(yarn: YarnCluster, yarn_s3: S3Server, tmp_path: Path) -> Iterator[Callable[..., YarnTask]]:
    """Makes a task of a kind, with further arguments of its operator. What it started is gone afterwards."""
    tasks: list[YarnTask] = []

    def make(kind: str, **options: Any) -> YarnTask:
        folder = tmp_path / uuid.uuid4().hex
        folder.mkdir()
        conf = {"spark.yarn.tags": folder.name, **options.pop("conf", {})}
        tasks.append(YarnTask(kind, yarn_s3, folder, {"conf": conf, **options}, yarn))
        return tasks[-1]

    try:
        yield make
    finally:
        for task in tasks:
            task.end()
