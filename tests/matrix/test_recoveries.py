"""One recovery on each Spark that users have, in a real Airflow: what `make matrix` runs (`scripts/matrix`).

numbers --> total        as a declared job, by spark-submit and over Spark Connect
clean --> report         as applications that know nothing of recovery
events ~> table          as streaming regions

And what a Spark can't do is refused by its name, before anything runs, and not tried again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_cluster import DRIVER, WORKER, KubernetesCluster
from kubernetes_task import documented_conf, documented_rights, documented_roles, spark_defaults
from pipeline import DagRun, Pipeline
from streams_run import IDS, assert_account, started, untouched
from yarn_cluster import YarnCluster

from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, SECRET_KEY
from airflow_recovery.testing.spark_cluster import connect_server, standalone_cluster
from scripts.matrix.cells import NO_CLUSTER_MODE, NO_CONNECT, NO_STREAMS
from scripts.spark_drivers import kill_9
from scripts.sparks import NEWEST, Spark, installed_spark

pytestmark = [pytest.mark.drill, pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

MANAGERS = ("local", "standalone", "yarn", "kubernetes")
WITHOUT_CONNECT = ("3.5",)
WITHOUT_STREAMS = ("3.5", "4.0", "4.1")


@contextmanager
def connected(
    pipeline: Pipeline, conn_id: str, url: str, *, conn_type: str = "spark", extra: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Meanwhile the connection is there, in Airflow's database."""
    host, _, port = url.rpartition(":") if "://" in url else (url, "", "")
    body: dict[str, Any] = {"connection_id": conn_id, "conn_type": conn_type, "host": host, "login": "matrix"}
    body |= {"port": int(port)} if port else {}
    pipeline.airflow.api("POST", "/connections", body | {"extra": json.dumps(extra or {})})
    try:
        yield
    finally:
        pipeline.airflow.api("DELETE", f"/connections/{conn_id}")


@contextmanager
def submitted_to(request: pytest.FixtureRequest, pipeline: Pipeline, spark: Spark, manager: str) -> Iterator[str]:
    """Meanwhile the connection leads there; what is behind the id of a DAG then."""
    conn_id = f"submit_{spark.series}"
    if manager == "local":
        with connected(pipeline, conn_id, "local[1]"):
            yield ""
    elif manager == "standalone":
        with (
            standalone_cluster(cores=2, memory="2g", home=spark.home) as cluster,  # streams are two at a time
            connected(pipeline, conn_id, cluster.master_url),
        ):
            yield ""
    elif manager == "kubernetes":
        kubernetes: KubernetesCluster = request.getfixturevalue("kubernetes")
        with namespace(pipeline, spark, kubernetes) as name:
            extra = {"deploy-mode": "cluster", "namespace": name}
            with connected(pipeline, conn_id, f"k8s://{kubernetes.url}", extra=extra):
                yield "_kubernetes"
    else:
        yarn: YarnCluster = request.getfixturevalue("yarn")
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.url}
        with hadoop_conf(pipeline, spark, yarn), connected(pipeline, conn_id, "yarn", extra=extra):
            yield "_yarn"


@contextmanager
def hadoop_conf(pipeline: Pipeline, spark: Spark, yarn: YarnCluster) -> Iterator[None]:
    """Meanwhile the workers find the cluster, and ``spark`` on its node."""
    folder = pipeline.folder / "hadoop"
    shutil.copytree(yarn.folder / "conf", folder)
    theirs = {"spark.yarn.jars": f"local:{spark.home}/jars/*", "spark.executorEnv.PYSPARK_PYTHON": spark.python}
    with (folder / "spark-defaults.conf").open("a") as out:
        out.write("".join(f"{key} {value}\n" for key, value in theirs.items()))
    try:
        yield
    finally:
        shutil.rmtree(folder)


@contextmanager
def namespace(pipeline: Pipeline, spark: Spark, cluster: KubernetesCluster) -> Iterator[str]:
    """Meanwhile the workers find a namespace. It has the roles of docs/kubernetes.md, and nobody asks for more."""
    name, shared, folder = f"matrix-{uuid.uuid4().hex}", str(pipeline.folder), pipeline.folder / "pods"
    cluster.namespace(name, documented_roles())
    cluster.secret(name, "s3", {"key": ACCESS_KEY, "secret": SECRET_KEY})
    theirs = {
        **spark_defaults(cluster, pipeline.s3.endpoint_url),
        **documented_conf(),
        "spark.kubernetes.container.image": spark.series,
        "spark.kubernetes.file.upload.path": f"file://{folder}/uploads",
    }
    for role in ("driver", "executor"):
        volume = f"spark.kubernetes.{role}.volumes.hostPath.shared"
        theirs |= {f"{volume}.mount.path": shared, f"{volume}.options.path": shared}
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in theirs.items()))
    shutil.copy(cluster.kubeconfig(WORKER), folder / "kubeconfig")
    try:
        yield name
        rights, asked = documented_rights(), cluster.asked(name)
        assert {role: asked[role] - rights[role] for role in asked} == {WORKER: set(), DRIVER: set()}
    finally:
        shutil.rmtree(folder)


def make_a_lost_result_again(pipeline: Pipeline, dag_id: str) -> None:
    run = pipeline.run(dag_id)
    before = run.start().ends()
    before.check()
    assert before.rows("total") == [(run.day, 90)]

    run.delete("numbers", "total")
    run.clear("total")
    after = run.ends()

    after.check()
    assert after.ran_since(before) == {"numbers": 1, "total": 1}
    assert after.attempts["numbers"][1].objects["lost"]["reporter"] == "total"
    assert after.rows("total") == [(run.day, 90)]


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("series", NEWEST)
def test_a_declared_job_by_spark_submit(
    request: pytest.FixtureRequest, pipeline: Pipeline, series: str, manager: str
) -> None:
    with submitted_to(request, pipeline, installed_spark(series), manager) as suffix:
        make_a_lost_result_again(pipeline, f"declared_{series}{suffix}")


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize("series", NEWEST)
def test_drop_ins(request: pytest.FixtureRequest, pipeline: Pipeline, series: str, manager: str) -> None:
    with submitted_to(request, pipeline, installed_spark(series), manager) as suffix:
        run = pipeline.run(f"drop_in_{series}{suffix}")
        run.group_id = "~28operators~29"
        before = run.start().ends()
        before.check()
        assert before.rows("report.report") == [(42.0,)]

        run.delete("clean.cleaned", "report.report")
        run.clear("report")
        after = run.ends()

        after.check()
        assert after.ran_since(before) == {"clean": 1, "report": 1}
        assert after.rows("report.report") == [(42.0,)]


@contextmanager
def connected_to_server(pipeline: Pipeline, spark: Spark, conf: Mapping[str, str] | None = None) -> Iterator[None]:
    one_part = {"spark.sql.shuffle.partitions": "1", "spark.default.parallelism": "1"}
    with (
        connect_server(master="local[1]", conf={**one_part, **(conf or {})}, home=spark.home) as server,
        connected(pipeline, f"connect_{spark.series}", server.url, conn_type="spark_connect"),
    ):
        yield


@pytest.mark.parametrize("series", [series for series in NEWEST if series not in WITHOUT_CONNECT])
def test_a_declared_job_over_connect(pipeline: Pipeline, series: str) -> None:
    """The client is the one beside Airflow, whatever the server's version is."""
    with connected_to_server(pipeline, installed_spark(series)):
        make_a_lost_result_again(pipeline, f"connect_{series}")


@pytest.mark.parametrize("series", [series for series in NEWEST if series not in WITHOUT_CONNECT])
def test_the_full_package_as_the_client(client_pipeline: Pipeline, series: str) -> None:
    """Of the server's version."""
    with connected_to_server(client_pipeline, installed_spark(series)):
        make_a_lost_result_again(client_pipeline, f"connect_{series}")


def replace_a_sink_that_dies(pipeline: Pipeline, series: str) -> None:
    streams = started(pipeline, f"streams_{series}", hold_at=4 * IDS)
    streams.wait_done("events", 4 * IDS)
    with untouched(streams, ("events", 1)):
        kill_9(streams.jvm("table", 1))
        streams.hold_at(8 * IDS)
        streams.wait_view("events", 2)
    streams.hold_at(None)
    journal = streams.ends()
    assert journal.executions() == {"events": 1, "table": 2}
    assert_account(streams, journal, channel="events")


@pytest.mark.parametrize("series", [series for series in NEWEST if series not in WITHOUT_STREAMS])
def test_streaming_regions(request: pytest.FixtureRequest, pipeline: Pipeline, series: str) -> None:
    with submitted_to(request, pipeline, installed_spark(series), "local"):
        replace_a_sink_that_dies(pipeline, series)


@pytest.mark.parametrize("series", [series for series in NEWEST if series not in WITHOUT_STREAMS])
def test_streaming_regions_on_executors(request: pytest.FixtureRequest, pipeline: Pipeline, series: str) -> None:
    """Rows are written to a channel, and read from it, by processes of the cluster's."""
    with submitted_to(request, pipeline, installed_spark(series), "standalone"):
        replace_a_sink_that_dies(pipeline, series)


# --- what a Spark can't do --------------------------------------------------------------------------------------------


def assert_refused(run: DagRun, region: str, words: str, *, attempts: int) -> None:
    """The run has failed by its first try of ``region``, which has read and written nothing."""
    journal = run.ends("failed")
    assert words in run.log(region)
    assert run.tries(region) == 1
    assert journal.executions().get(region, 0) == attempts
    assert not any(attempt.is_finished for region in journal.attempts.values() for attempt in region.values())


def assert_server_is_refused(pipeline: Pipeline, spark: Spark) -> None:
    # Its server is not in the package: from Maven Central, whose newest of 3.5 is this one.
    conf = {"spark.jars.packages": "org.apache.spark:spark-connect_2.12:3.5.7"}
    with connected_to_server(pipeline, spark, conf):
        assert_refused(pipeline.run(f"connect_{spark.series}").start(), "numbers", NO_CONNECT, attempts=1)


@pytest.mark.parametrize("series", WITHOUT_CONNECT)
def test_a_server_that_is_too_old_is_refused(pipeline: Pipeline, series: str) -> None:
    assert_server_is_refused(pipeline, installed_spark(series))


@pytest.mark.parametrize("series", WITHOUT_CONNECT)
def test_a_server_and_a_client_that_are_too_old_are_refused(client_pipeline: Pipeline, series: str) -> None:
    assert_server_is_refused(client_pipeline, installed_spark(series))


@pytest.mark.parametrize("series", WITHOUT_STREAMS)
def test_streams_on_a_spark_that_is_too_old_are_refused(
    request: pytest.FixtureRequest, pipeline: Pipeline, series: str
) -> None:
    with submitted_to(request, pipeline, installed_spark(series), "local"):
        run = started(pipeline, f"streams_{series}").run
        assert_refused(run, "events", NO_STREAMS, attempts=1)
        assert run.calls("events-called") == run.calls("table") == 0


@pytest.mark.parametrize("series", NEWEST)
def test_a_standalone_cluster_in_cluster_mode_is_refused(pipeline: Pipeline, series: str, tmp_path: Path) -> None:
    """Before it is submitted: Spark itself says so too, but no more than that."""
    spark = installed_spark(series)
    with connected(pipeline, f"submit_{series}", "spark://127.0.0.1:7077", extra={"deploy-mode": "cluster"}):
        run = pipeline.run(f"declared_{series}_cluster").start()
        assert_refused(run, "numbers", NO_CLUSTER_MODE, attempts=0)

    application = tmp_path / "application.py"
    application.touch()
    mode = ["--master", "spark://127.0.0.1:7077", "--deploy-mode", "cluster"]
    done = subprocess.run(
        [str(spark.submit), *mode, str(application)],
        env={**os.environ, "SPARK_HOME": str(spark.home)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode != 0
    assert "not supported for python applications on standalone clusters" in done.stdout + done.stderr
