"""A real standalone cluster, deploy mode ``cluster``: the task is killed with ``kill -9``, its driver is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cluster_task
import pytest
from outliving import IDENTITY, task_of

from airflow_recovery.attempt.heartbeat_watch import HeartbeatTimeouts
from airflow_recovery.attempt.region_task import Decision
from airflow_recovery.driver.heartbeat import Beat
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import AttemptState
from airflow_recovery.store.local import LocalStore
from airflow_recovery.testing.fake_airflow import FakeAirflow
from airflow_recovery.testing.patience import HANG_S, wait_until
from airflow_recovery.testing.spark_cluster import StandaloneCluster, standalone_cluster

pytestmark = pytest.mark.spark


@pytest.fixture
def cluster() -> Iterator[StandaloneCluster]:
    with standalone_cluster(cores=3, memory="2g") as running:
        yield running


def test_fault_3_the_driver_of_a_killed_task_is_followed_and_one_application_ran(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    journal = Journal(LocalStore(f"file://{tmp_path}/journal"), IDENTITY, writer="test")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    log = (tmp_path / "task.log").open("w")
    command = [sys.executable, cluster_task.__file__, str(tmp_path), cluster.master_url]
    task = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    wait_until((tmp_path / "ready").exists, f"the vertex runs: {(tmp_path / 'task.log')}")
    task.kill()
    task.wait()
    assert journal.read_outcome("r", 1) is None

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 10:
            (tmp_path / "go").touch()
        time.sleep(seconds)

    looks: list[float] = []
    airflow = FakeAirflow({"r": ()})
    runner = cluster_task.ClusterRunner(tmp_path, "second try", master=cluster.master_url)
    heartbeat_timeouts = HeartbeatTimeouts(HANG_S, poll_s=0.3, sleep=sleep)
    result = task_of(airflow.start("r"), airflow, runner, heartbeat_timeouts, cluster_task.PLAN).execute()

    assert (result.decision, result.attempt, result.outcome.state) == (Decision.KEPT, 1, AttemptState.FINISHED)
    assert len(looks) >= 10
    assert len(cluster.drivers()) == 1
    assert len(cluster.applications()) == 1
    beat = Beat.from_bytes(journal.store.get(journal.layout.heartbeat("r", 1)).body)
    assert beat is not None
    assert (beat.application_id, beat.ended) == (result.outcome.application_id, False)
