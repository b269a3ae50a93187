from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare_python import OF_STREAMS, make_bare_python
from kubernetes_cluster import KubernetesCluster, find_program, kubernetes_cluster
from kubernetes_node import node_of
from paths import CODE
from pipeline import Pipeline, environment
from yarn_cluster import YarnCluster, yarn_cluster

from airflow_recovery.streaming.spec import StreamingSpec
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.testing.s3_server import SECRET_KEY
from scripts.matrix.cells import EXECUTORS
from scripts.sparks import NEWEST, Spark, installed_spark, spark_of

HERE = Path(__file__).parent
INTEGRATION_JOBS = HERE.parent / "integration" / "dags" / "integration_jobs"


@pytest.fixture(scope="session")
def matrix_s3(s3_server_names: list[str], start_s3_server: Callable[[str], S3Server]) -> S3Server:
    return start_s3_server(s3_server_names[-1])


@pytest.fixture(scope="session", params=EXECUTORS)
def pipeline(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, matrix_s3: S3Server
) -> Iterator[Pipeline]:
    """An Airflow of each executor, for every Spark of the matrix that is installed (`scripts.sparks`)."""
    with open_pipeline(tmp_path_factory.mktemp(request.param), matrix_s3, request.param) as running:
        yield running


@pytest.fixture(params=EXECUTORS)
def client_pipeline(
    request: pytest.FixtureRequest, series: str, tmp_path_factory: pytest.TempPathFactory, matrix_s3: S3Server
) -> Iterator[Pipeline]:
    """An Airflow of each executor beside which the full package of a Spark is installed: it comes before what is."""
    path = os.pathsep.join([str(installed_spark(series).site), os.environ["PYTHONPATH"]])
    folder = tmp_path_factory.mktemp(f"client-{request.param}")
    with open_pipeline(folder, matrix_s3, request.param, {"PYTHONPATH": path}) as running:
        yield running


@contextmanager
def open_pipeline(
    folder: Path, server: S3Server, executor: str, extra: Mapping[str, str] | None = None
) -> Iterator[Pipeline]:
    """The journal is on S3. With Celery there are two workers, each on a machine of its own."""
    bucket = f"matrix-{uuid.uuid4().hex[:8]}"
    server.create_bucket(bucket)
    sparks = [spark for spark in map(spark_of, NEWEST) if spark.is_installed()]
    streaming_python = make_bare_python(folder / "python", *OF_STREAMS)
    env = environment(folder, bucket, "sc://127.0.0.1:1") | {
        "MATRIX_SPARKS": json.dumps({spark.series: _as_told(spark, streaming_python) for spark in sparks}),
        "MATRIX_HADOOP": str(folder / "hadoop"),
        # There while a cell needs it.
        "SPARK_CONF_DIR": str(folder / "pods"),
        "KUBECONFIG": str(folder / "pods" / "kubeconfig"),
        "AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER": "False",
        "AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE": str(folder / "pods" / "kubeconfig"),
        # A cell is two or four starts of a Spark: an archive of its classes would not be made in time to be used.
        "AIRFLOW__RECOVERY__DRIVER_JVM": "plain",
        **(extra or {}),
    }
    del env["PYSPARK_PYTHON"]
    lake = folder / "lake"
    lake.mkdir()
    (lake / "raw.csv").write_text("amount\n1\n\n41\n")
    dags = folder / "dags"
    shutil.copytree(HERE / "dags", dags)
    shutil.copytree(CODE / "existing", dags / "existing")
    (dags / "integration_jobs").mkdir()
    for name in ("__init__.py", "gates.py", "streams.py"):
        shutil.copy(INTEGRATION_JOBS / name, dags / "integration_jobs")
    workers = 2 if executor == "CeleryExecutor" else 0
    airflow = LocalAirflow(folder / "airflow", dags, database="postgresql", workers=workers, env=env)
    for name in [name for name in airflow.env if name.startswith("AWS_") and name != "AWS_EC2_METADATA_DISABLED"]:
        del airflow.env[name]
    with airflow:
        running = Pipeline(airflow, server, bucket, folder)
        running.set_aws_password(SECRET_KEY)
        yield running


def _as_told(spark: Spark, streaming_python: Path) -> dict[str, str]:
    """What the DAGs (`dags/matrix_dag.py`) are told of it. A Spark that refuses streams does so without pandas."""
    has_streams = tuple(map(int, spark.series.split("."))) >= StreamingSpec.oldest_spark
    return {
        "submit": str(spark.submit),
        "home": str(spark.home),
        "python": str(spark.python),
        "streaming_python": str(streaming_python if has_streams else spark.python),
    }


@pytest.fixture(scope="session")
def yarn(matrix_s3: S3Server) -> Iterator[YarnCluster]:
    """One for every Spark. Its nodes have the credentials of S3, as a machine with a role has."""
    variables = {**matrix_s3.environment(), "AWS_ENDPOINT_URL_S3": matrix_s3.endpoint_url}
    with yarn_cluster(spark_conf={f"spark.yarn.appMasterEnv.{name}": variables[name] for name in variables}) as running:
        yield running


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
    """With a node that has an image of every Spark, called as its series."""
    program = find_program()
    assert program is not None, "the API server is not built: scripts/setup.sh --drill"
    images = {series: spark for series in NEWEST if (spark := spark_of(series)).is_installed()}
    with kubernetes_cluster(program) as running, node_of(running, images=images):
        yield running
