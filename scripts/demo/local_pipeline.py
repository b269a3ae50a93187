"""A local pipeline: an S3 server and a whole Airflow on free ports of 127.0.0.1, everything below one folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from airflow_recovery.store import ObjectStore, open_store
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.local_airflow.settings import PATIENT
from airflow_recovery.testing.s3_server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    S3Server,
    local_server,
)
from scripts.jars import class_path_variables

REPOSITORY = Path(__file__).resolve().parents[2]
BUCKET = "recovery"
TASKS_AT_ONCE = 4
"""More than there are cores: a task that waits for a JVM, or for an answer, takes none."""


class LocalPipeline:
    """A running S3 server and Airflow. Made by `open_local_pipeline`."""

    def __init__(self, folder: Path, airflow: LocalAirflow, s3: S3Server, results_uri: str) -> None:
        self.folder = folder
        self.airflow = airflow
        self.results_uri = results_uri
        self._s3 = S3Store(journal_uri(), endpoint_url=s3.endpoint_url, session=s3.session())

    @property
    def journal(self) -> S3Store:
        """The store that holds the journals of the demo."""
        return self._s3

    @property
    def results(self) -> ObjectStore:
        """The store that holds the results."""
        return self.open_data(self.results_uri)

    def open_data(self, location: str) -> ObjectStore:
        """The store with base URI ``location``, of a result."""
        return self._s3.sibling(location) if location.startswith("s3://") else open_store(location)


def journal_uri() -> str:
    """The URI of the journal."""
    return f"s3://{BUCKET}/journal"


@contextmanager
def open_local_pipeline(
    folder: Path, lake: Path, *, on_s3: bool = False, of_streams: bool = False, dags: Path = REPOSITORY / "dags"
) -> Iterator[LocalPipeline]:
    """Start the S3 server and Airflow; leave no process behind. ``folder`` is made, and may not exist.

    ``on_s3``: not only the journal is on S3 but also sources and results. ``of_streams``: results and channels are.
    """
    folder.mkdir(parents=True)
    with local_server(folder / "s3") as s3:
        s3.create_bucket(BUCKET)
        # On a local disk an object's etag is its content's hash.
        data = f"s3://{BUCKET}" if on_s3 or of_streams else f"file://{folder}"
        environment = _environment_of(folder, f"file://{lake}", f"{data}/results", s3)
        if on_s3:
            _upload(lake, S3Store(f"{data}/lake", endpoint_url=s3.endpoint_url, session=s3.session()))
            environment |= {"FLIGHTS_LAKE": f"{data}/lake", **class_path_variables()}
        if of_streams:
            environment |= class_path_variables() | {
                # Else a parse of the DAG files takes a core while a restart is measured.
                "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
                "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(REPOSITORY / "dags")]),
            }
        airflow = LocalAirflow(
            folder / "airflow",
            dags,
            env=environment,
            parallelism=TASKS_AT_ONCE,
            fast=False,  # Airflow looks as often as it does in production
        )
        with airflow:
            yield LocalPipeline(folder, airflow, s3, f"{data}/results")


def _upload(folder: Path, store: ObjectStore) -> None:
    for path in folder.rglob("*.csv"):
        store.put(str(path.relative_to(folder)), path.read_bytes())


@contextmanager
def own_folder() -> Iterator[Path]:
    """``.demo`` in the repository, emptied, for one demo at a time. Nothing else is ever removed.

    Raises `BlockingIOError` while another demo (one that was kept, perhaps) lives in it.
    """
    folder = REPOSITORY / ".demo"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
        yield folder


def stop_by_signals() -> None:
    """From now on a signal that asks this process to end has it clean up first."""

    def stop(number: int, frame: object) -> NoReturn:
        # Once: a second signal may not interrupt the cleaning up.
        for signals in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signals, signal.SIG_IGN)
        print("\nStopping ...", file=sys.stderr, flush=True)
        raise SystemExit(128 + number)

    for signals in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signals, stop)


def _environment_of(folder: Path, lake_uri: str, results_uri: str, s3: S3Server) -> dict[str, str]:
    """What Airflow and Spark of a demo are told by environment variables. ``folder``: for Spark's own files."""
    aws = {"region_name": REGION, "endpoint_url": s3.endpoint_url}
    return {
        **PATIENT,
        "AIRFLOW__RECOVERY__JOURNAL": journal_uri(),
        "AIRFLOW__RECOVERY__RESULTS": results_uri,
        "AIRFLOW__RECOVERY__AWS_CONN_ID": "recovery_s3",
        "AIRFLOW_CONN_RECOVERY_S3": json.dumps(
            {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": aws}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": lake_uri,
        "AIRFLOW__RECOVERY__PRELOAD": "connect",
        "AIRFLOW__RECOVERY__DRIVER_JVM": "short-lived",
        "AIRFLOW__RECOVERY__CLASS_ARCHIVES": f"{sys.prefix}/spark-classes",  # made by scripts/setup.sh
        # The daily schedule is for real life: here only the acts run.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
