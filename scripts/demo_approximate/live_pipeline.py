"""A local pipeline: an S3 server that holds journal and channels, and a whole Airflow, on free ports of 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import S3Server, local_server
from scripts.demo.local_pipeline import BUCKET, REPOSITORY, environment_of, journal_uri
from scripts.jars import class_path_variables

RESULTS = f"s3://{BUCKET}/results"
TASKS_AT_ONCE = 4
"""Three streaming regions, and room for one more."""


class LivePipeline:
    """A running S3 server and Airflow. Made by `open_live_pipeline`."""

    def __init__(self, folder: Path, airflow: LocalAirflow, s3: S3Server) -> None:
        self.folder = folder
        self.airflow = airflow
        self.journal = S3Store(journal_uri(), endpoint_url=s3.endpoint_url, session=s3.session())
        self.results = self.journal.sibling(RESULTS)


@contextmanager
def open_live_pipeline(folder: Path, lake: Path, dags: Path = REPOSITORY / "dags") -> Iterator[LivePipeline]:
    """Start the S3 server and Airflow; leave no process behind. ``folder`` is made, and may not exist."""
    folder.mkdir(parents=True)
    with local_server(folder / "s3") as s3:
        s3.create_bucket(BUCKET)
        airflow = LocalAirflow(
            folder / "airflow",
            dags,
            env=_environment(folder, lake, s3),
            parallelism=TASKS_AT_ONCE,
            fast=False,  # Airflow looks as often as it does in production
        )
        with airflow:
            yield LivePipeline(folder, airflow, s3)


def end_stream(lake: Path, last: date) -> None:
    """Remove the daily files after ``last``."""
    for file in (lake / "flights").glob("*/*.csv"):
        if date.fromisoformat(file.stem) > last:
            file.unlink()


def date_files(lake: Path) -> None:
    """Give the daily files times in the order of their days: a stream of files goes by these."""
    begun = 1_357_000_000
    for number, file in enumerate(sorted((lake / "flights").glob("*/*.csv"), key=lambda path: path.name)):
        os.utime(file, (begun + number, begun + number))


def _environment(folder: Path, lake: Path, s3: S3Server) -> dict[str, str]:
    return (
        environment_of(folder, f"file://{lake}", RESULTS, s3)
        | class_path_variables()
        | {
            # Else a parse of the DAG files takes a core while a restart is measured.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
            "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(REPOSITORY / "dags")]),
        }
    )
