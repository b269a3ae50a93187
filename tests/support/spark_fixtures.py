"""One Spark of each kind for all the tests that ask for it; `tests/conftest.py` has them run by one worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_recovery.driver.connect_server import CLIENT_VARIABLES
from airflow_recovery.testing.spark_cluster import ConnectServer, StandaloneCluster, connect_server, standalone_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def outside_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile this process is none of Connect's; afterwards it is what it was."""
    for name in CLIENT_VARIABLES:
        monkeypatch.setenv(name, "set, so that what was there before is put back")
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A classic session, whatever modules before have talked to a Connect server."""
    from pyspark.sql import SparkSession

    for name in CLIENT_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[StandaloneCluster]:
    with standalone_cluster(cores=2, memory="1g") as running:
        yield running


@pytest.fixture(scope="session")
def connect() -> Iterator[ConnectServer]:
    with connect_server(master="local[2]") as running:
        yield running
