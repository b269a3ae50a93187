"""Journal, results and data on Google's and Azure's stores, in Airflow: `dags/examples`, and the README's declared job.

On fake-gcs-server and Azurite. Airflow's connections say how journal and results are reached; Spark reads and writes by
the clouds' connectors, with settings of its own.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow.parquet as parquet
import pytest
from cloud_servers import ACCOUNT, ACCOUNT_KEY, CLOUD_SERVERS, CloudServer, FakeGcsServer, installed_cloud_servers
from journal_objects import JournalObjects, decoded
from pipeline import AFTER_THE_EXAMPLES_BEGIN, DagRun, Pipeline, environment, fresh_day
from readme_blocks import write_dags

from airflow_recovery.testing.local_airflow import LocalAirflow
from airflow_recovery.verify import verify_run
from scripts.jars import fetched_jars
from scripts.spark_drivers import drivers_of, kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3, pytest.mark.drill]

DAGS = Path(__file__).parents[2] / "dags"
OPERATORS = "~28operators~29"
FLIGHTS = "\n".join(["carrier,origin,dest,dep_time,arr_delay", *["UA,EWR,IAH,517,11"] * 1001, "AA,JFK,MIA,NA,NA"])


def of_google(server: FakeGcsServer) -> tuple[dict[str, str], dict[str, str]]:
    """Airflow's connection, and Hadoop's settings."""
    access = server.access()
    extra = {"keyfile_dict": access.options["service_account_key"], "endpoint_url": access.endpoint_url}
    return {"conn_type": "google_cloud_platform", "extra": json.dumps(extra)}, {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        "fs.gs.block.size": "67108864",
        "fs.gs.operation.move.enable": "false",
        "fs.gs.auth.type": "UNAUTHENTICATED",
        "fs.gs.project.id": "recovery-tests",
        "fs.gs.storage.root.url": f"{server.endpoint_url}/",
    }


def of_azure(server: Any) -> tuple[dict[str, str], dict[str, str]]:
    """As `of_google`. Azurite speaks the API of blobs, and HTTP alone."""
    host = f"{server.endpoint_url}/{ACCOUNT}"
    return {"conn_type": "wasb", "host": host, "login": ACCOUNT, "password": ACCOUNT_KEY}, {
        "fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        "fs.azure.always.use.https": "false",
        "fs.azure.metrics.collection.enabled": "false",
        "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        "fs.azure.abfs.endpoint": server.endpoint_url.removeprefix("http://"),
        "fs.azure.account.hns.enabled": "false",
        "fs.azure.fns.account.service.type": "BLOB",
        f"fs.azure.account.key.{ACCOUNT}.blob.core.windows.net": ACCOUNT_KEY,
        f"fs.azure.account.key.{ACCOUNT}.dfs.core.windows.net": ACCOUNT_KEY,
    }


@dataclass(frozen=True)
class Cloud:
    """``example``: the DAG of it. ``option``: of ``[recovery]``, the name of its connection."""

    example: str
    server: str
    option: str
    settings: Any


CLOUDS = {
    cloud.example: cloud
    for cloud in (
        Cloud("google_cloud", "fake-gcs-server", "GCP_CONN_ID", of_google),
        Cloud("azure", "azurite", "WASB_CONN_ID", of_azure),
    )
}


@dataclass(frozen=True)
class CloudPipeline(Pipeline):
    """Journal, results and the data of ``example`` in stores of ``server``, a bucket each."""

    server: Any = None
    example: str = ""

    @property
    def lake(self) -> str:
        return str(self.server.create_bucket("lake"))

    def journal(self, dag_id: str, day: str, group_id: str, run_key: str = "") -> JournalObjects:
        """As `Pipeline.journal`."""
        run_key = run_key or f"date-{day}T000000Z"
        store = self.open(f"{self.server.create_bucket('journal')}/recovery")
        client = SimpleNamespace(
            get_paginator=lambda _: SimpleNamespace(paginate=lambda **asked: [_page(store, asked["Prefix"])]),
            get_object=lambda **asked: {"Body": io.BytesIO(store.get(asked["Key"]).body)},
        )

        def verify() -> Any:
            run, group = decoded(run_key), decoded(group_id)
            return verify_run(store, self.open, dag_id=dag_id, run_key=run, group_id=group, ended=True, deep=True)

        return JournalObjects(client, "", f"{dag_id}/{run_key}/{group_id}/", verify)

    def open(self, uri: str) -> Any:
        """A store of the server."""
        return self.server.open(uri)

    def delete(self, run: DagRun, result: str) -> None:
        """Delete the registered objects of a result."""
        manifest = run.journal().manifest(result)
        self.open(manifest["location"]).delete([path for path, _, _ in manifest["objects"]])

    def rows(self, run: DagRun, result: str) -> list[tuple[Any, ...]]:
        """As `JournalObjects.rows`."""
        manifest = run.journal().manifest(result)
        store = self.open(manifest["location"])
        files = [io.BytesIO(store.get(path).body) for path, _, _ in manifest["objects"]]
        rows = (row for file in files for row in parquet.read_table(file).to_pylist())
        return sorted(tuple(row[name] for name in sorted(row)) for row in rows)


def _page(store: Any, prefix: str) -> Mapping[str, Any]:
    return {"Contents": [{"Key": found.key, "ETag": found.etag} for found in store.list(prefix)]}


@pytest.fixture(params=CLOUDS)
def clouds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CloudPipeline]:
    cloud = CLOUDS[request.param]
    if cloud.server not in installed_cloud_servers():
        pytest.skip(f"{cloud.server} is not installed: scripts/setup.sh --all")
    with CLOUD_SERVERS[cloud.server](tmp_path / "server") as server, open_pipeline(tmp_path, cloud, server) as running:
        yield running


@contextmanager
def open_pipeline(folder: Path, cloud: Cloud, server: CloudServer) -> Iterator[CloudPipeline]:
    connection, hadoop = cloud.settings(server)
    lake, journal, results = (server.create_bucket(name) for name in ("lake", "journal", "results"))
    folder_of_jars = fetched_jars("clouds", "Spark's connectors to other clouds", "hadoop-azure", "--drill")
    jars = f"{folder_of_jars}/*"
    conf = {f"spark.{side}.extraClassPath": jars for side in ("driver", "executor")}
    conf |= {f"spark.hadoop.{name}": value for name, value in hadoop.items()}
    (folder / "spark_conf").mkdir()
    (folder / "spark_conf" / "spark-defaults.conf").write_text("".join(f"{name} {conf[name]}\n" for name in conf))
    dags = folder / "dags"
    write_dags(dags, f"{lake}/flights")
    shutil.copytree(DAGS / "applications", dags / "examples" / "applications")
    shutil.copy(DAGS / "examples" / f"{cloud.example}.py", dags / "examples")
    (dags / "adopt.py").unlink()
    env = environment(folder, "none", "sc://127.0.0.1:1") | {
        "AIRFLOW__RECOVERY__JOURNAL": f"{journal}/recovery",
        "AIRFLOW__RECOVERY__RESULTS": f"{results}/recovery",
        f"AIRFLOW__RECOVERY__{cloud.option}": "the_cloud",
        "FLIGHTS_LAKE": f"{lake}/flights",
        "SPARK_CONF_DIR": str(folder / "spark_conf"),
        "PYSPARK_PYTHON": sys.executable,
    }
    del env["AIRFLOW__RECOVERY__AWS_CONN_ID"]
    with LocalAirflow(folder / "airflow", dags, env=env) as airflow:
        airflow.api("POST", "/connections", {**connection, "connection_id": "the_cloud"})
        nothing: Any = None
        yield CloudPipeline(airflow, nothing, "", folder, server=server, example=cloud.example)


def test_an_attempt_that_dies_and_a_result_that_is_lost_on_a_cloud_are_made_again(clouds: CloudPipeline) -> None:
    clouds.open(f"{clouds.lake}/flights").put("flights.csv", FLIGHTS.encode())
    day = fresh_day(AFTER_THE_EXAMPLES_BEGIN)
    clouds.open(f"{clouds.lake}/flights/{day}").put("a.csv", FLIGHTS.encode())
    example, declared = clouds.run(clouds.example, day=day), clouds.run("flights", day=day)
    example.group_id, declared.group_id = OPERATORS, "flights"

    # An existing application, which dies once.
    example.start()
    program = str(clouds.airflow.dags_folder / "examples" / "applications" / "clean.py")
    found: list[psutil.Process] = []
    example.wait(lambda: found.extend(drivers_of(clouds.airflow.home, program)) or bool(found), "its application")
    kill_9(found[0])
    first = example.ends()
    assert first.executions() == {"clean": 2, "report": 1}
    assert clouds.rows(example, "report.report") == [(1001, "EWR")]
    clouds.delete(example, "clean.cleaned")
    clouds.delete(example, "report.report")
    example.clear("report")
    second = example.ends()
    assert second.ran_since(first) == {"clean": 1, "report": 1}
    assert second.attempts["clean"][2].objects["lost"]["reporter"] == "report"
    assert clouds.rows(example, "report.report") == [(1001, "EWR")]

    # A declared job, whose driver writes to the journal.
    made = declared.start().ends()
    made.check()
    assert made.executions() == {"by_route": 1, "busiest": 1}
    assert clouds.rows(declared, "busiest") == [(1001, "IAH", "EWR")]
