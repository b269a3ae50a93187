from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline import Pipeline, environment

from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import SECRET_KEY
from scripts.sparks import NEWEST, spark_of

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def pipeline(
    s3_server_names: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    start_s3_server: Callable[[str], S3Server],
) -> Iterator[Pipeline]:
    """One Airflow for every Spark of the matrix that is installed (`scripts.sparks`); the journal is on S3."""
    folder = tmp_path_factory.mktemp("matrix")
    server = start_s3_server(s3_server_names[-1])
    bucket = f"matrix-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    sparks = {series: spark_of(series) for series in NEWEST}
    named = {
        series: {"submit": str(spark.submit), "home": str(spark.home), "python": str(spark.python)}
        for series, spark in sparks.items()
        if spark.is_installed()
    }
    env = environment(folder, bucket, "sc://127.0.0.1:1") | {
        "MATRIX_SPARKS": json.dumps(named),
        # A cell is two or four starts of a Spark: an archive of its classes would not be made in time to be used.
        "AIRFLOW__RECOVERY__DRIVER_JVM": "plain",
    }
    del env["PYSPARK_PYTHON"]
    lake = folder / "lake"
    lake.mkdir()
    (lake / "raw.csv").write_text("amount\n1\n\n41\n")
    dags = folder / "dags"
    shutil.copytree(HERE / "dags", dags)
    airflow = LocalAirflow(folder / "airflow", dags, env=env)
    for name in [name for name in airflow.env if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    with airflow:
        running = Pipeline(airflow, server, bucket, folder)
        running.set_aws_password(SECRET_KEY)
        yield running
