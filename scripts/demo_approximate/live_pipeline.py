"""A local pipeline: an S3 server that holds journal and channels, and a whole Airflow, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    MotoServer,
    S3Server,
    VersityServer,
    find_versitygw,
)
from airflow_recovery.testing.s3a_jars import write_spark_conf

REPOSITORY = Path(__file__).resolve().parents[2]
BUCKET = "recovery"
JOURNAL, RESULTS = f"s3://{BUCKET}/journal", f"s3://{BUCKET}/results"
TASKS_AT_ONCE = 4
"""Three streaming regions, and room for one more."""


class LivePipeline:
    """A running S3 server and Airflow. Made by `open_live_pipeline`."""

    def __init__(self, folder: Path, airflow: LocalAirflow, s3: S3Server) -> None:
        self.folder = folder
        self.airflow = airflow
        self.journal = S3Store(JOURNAL, endpoint_url=s3.endpoint_url, session=s3.session())
        self.results = self.journal.sibling(RESULTS)


@contextmanager
def open_live_pipeline(folder: Path, lake: Path, dags: Path = REPOSITORY / "dags") -> Iterator[LivePipeline]:
    """Start the S3 server and Airflow; leave no process behind. ``folder`` is made, and may not exist."""
    folder.mkdir(parents=True)
    kind = MotoServer if find_versitygw() is None else VersityServer
    with kind(folder / "s3") as s3:
        s3.create_bucket(BUCKET)
        airflow = LocalAirflow(
            folder / "airflow",
            dags,
            env=_environment(folder, lake, s3),
            parallelism=TASKS_AT_ONCE,
            fast=False,  # short time-outs are for crash tests: on a slow machine they would cause failures of their own
        )
        with airflow:
            yield LivePipeline(folder, airflow, s3)


def date_files(lake: Path) -> None:
    """Give the daily files times in the order of their days: a stream of files goes by these."""
    begun = 1_357_000_000
    for number, file in enumerate(sorted((lake / "flights").glob("*/*.csv"), key=lambda path: path.name)):
        os.utime(file, (begun + number, begun + number))


def _environment(folder: Path, lake: Path, s3: S3Server) -> dict[str, str]:
    aws = {"region_name": REGION, "endpoint_url": s3.endpoint_url}
    return {
        "AIRFLOW__RECOVERY__JOURNAL": JOURNAL,
        "AIRFLOW__RECOVERY__RESULTS": RESULTS,
        "AIRFLOW__RECOVERY__AWS_CONN_ID": "recovery_s3",
        "AIRFLOW_CONN_RECOVERY_S3": json.dumps(
            {"conn_type": "aws", "login": ACCESS_KEY, "password": SECRET_KEY, "extra": aws}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "FLIGHTS_LAKE": f"file://{lake}",
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        # Else a parse of the DAG files takes a core while a restart is measured.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(REPOSITORY / "dags")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(write_spark_conf(folder / "spark-conf")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
