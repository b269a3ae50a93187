"""Spark leaves with exit code 0 in the middle of a write, by each committer that can be run here."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from paths import CODE
from s3_policy import Enforced, Statement
from tries import run_try, state_in

from airflow_recovery.driver.submit import store_conf, submit_environment
from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.results.finished_write import Earlier, OnUnfinished, leftovers, without_success
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.task.finished_output import FinishedOutputs
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from scripts.jars import class_path_variables
from scripts.s3_proxy import Answer, S3Proxy, S3Request

pytestmark = pytest.mark.spark

APPLICATION = str(CODE / "halfway.py")
ALGORITHM = "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"
FACTORY = "spark.hadoop.mapreduce.outputcommitter.factory.scheme"
MANIFEST = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
OUT = "results/*/*/*/*/*/out"

COMMITTERS: dict[str, tuple[dict[str, str], str, str, list[str]]] = {
    "file output 1": ({ALGORITHM: "1"}, "parquet", "_temporary/0/task_*/part-00000*", ["_SUCCESS"]),
    "file output 2": ({ALGORITHM: "2"}, "parquet", "part-00000*", ["_SUCCESS"]),
    "dynamic overwrite": (
        {"spark.sql.sources.partitionOverwriteMode": "dynamic"},
        "partitions",
        ".spark-staging-*/_temporary/0/task_*/*/part-00000*",
        [],
    ),
    "manifest": ({f"{FACTORY}.file": MANIFEST}, "hadoop", "_temporary/*/*/manifests/*.json", ["_SUCCESS"]),
}
"""Their settings, how the application writes, what lies there when one of two tasks has ended, and the markers at the
end."""


def operator(conf: Mapping[str, str], *arguments: str) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=APPLICATION,
            outputs=["out"],
            conf={**QUIET, **conf},
            application_args=["--out", "{output:out}", *arguments],
        )


@pytest.mark.parametrize("committer", COMMITTERS)
def test_fault_320_the_jvm_ends_while_a_task_writes(recovery: Path, committer: str) -> None:
    conf, writer, pattern, _ = COMMITTERS[committer]
    ends = ("--hold", "--until", f"{recovery}/{OUT}/{pattern}")
    with pytest.raises(RegionFailed) as caught:
        run_try(operator(conf, "--writer", writer, *ends))
    work = ".spark-staging-" if writer == "partitions" else "_temporary/"
    assert f"is not finished: expected no temporary files of a writer there, found {work}" in str(caught.value)


@pytest.mark.parametrize("writer", ["parquet", "partitions"])
def test_fault_323_an_exception_is_swallowed_when_half_of_the_tasks_have_committed(recovery: Path, writer: str) -> None:
    """Spark has aborted the job and has removed ``_temporary``: the missing marker alone tells."""
    application = recovery / "code" / "halfway.py"
    application.parent.mkdir()
    shutil.copy(APPLICATION, application)
    task = operator({ALGORITHM: "2"}, "--writer", writer, "--fail")
    task.application = str(application)
    with pytest.raises(RegionFailed, match=r"expected a _SUCCESS of this attempt beside (half=[01]/)?part-00000-"):
        run_try(task)
    (left,) = {path.name for path in recovery.glob(f"{OUT}/**/part-*")}
    assert left.startswith("part-00000-")
    assert not list(recovery.glob(f"{OUT}/_*"))


@pytest.mark.parametrize("committer", COMMITTERS)
def test_a_write_that_has_ended_is_registered(recovery: Path, committer: str) -> None:
    conf, writer, _, markers = COMMITTERS[committer]
    run_try(operator(conf, "--writer", writer))
    (output,) = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].outcome.outputs
    assert len(output.objects) == (4 if writer == "partitions" else 2)
    names = {path.name for path in Path(output.location.removeprefix("file://")).iterdir()}
    assert [name for name in sorted(names) if name.startswith("_")] == markers


# --- S3A --------------------------------------------------------------------------------------------------------------


class SecondCommit:
    """Every upload but the first is refused its completion; the application is told to leave then."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag
        self._first: str | None = None

    def __call__(self, request: S3Request) -> Answer | None:
        if not (request.method == "POST" and "uploadId" in request.query):
            return None
        self._first = self._first or request.key
        if request.key == self._first:
            return None
        self._flag.touch()
        return Answer(503, "SlowDown")


class Lake:
    """One folder of a bucket, to which Spark writes through a proxy, and at which this process looks directly."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        self._server, self._folder = server, folder
        self.uri = f"s3://lake/{uuid.uuid4().hex}/out"
        self.store = S3Store(self.uri, endpoint_url=server.endpoint_url, session=server.session())

    def submit_halfway(self, committer: str, flag: Path) -> None:
        """The JVM ends in the commit of the job, when one of two uploads is completed."""
        with S3Proxy(self._server, SecondCommit(flag)) as proxy:
            self.submit(committer, proxy, "--until", str(flag))

    def submit(self, committer: str, proxy: S3Proxy, *arguments: str) -> None:
        """Run the application. It leaves with exit code 0, whatever it has written."""
        base = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        env = submit_environment({**base, **credentials, **class_path_variables()})
        conf = {
            **QUIET,
            **store_conf(StoreSpec(self.uri, proxy.endpoint_url, REGION), env),
            f"{FACTORY}.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
            "spark.hadoop.fs.s3a.committer.name": committer,
            "spark.hadoop.fs.s3a.committer.threads": "1",
            "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{self._folder}/staging",
            "spark.hadoop.hadoop.tmp.dir": f"{self._folder}/hadoop",
        }
        settings = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
        out = self.uri.replace("s3://", "s3a://")
        command = ["spark-submit", "--master", "local[1]", *settings, APPLICATION, "--out", out, "--writer", "hadoop"]
        done = subprocess.run(
            [*command, *arguments], env=env, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture
def lake(start_s3_server: Callable[[str], S3Server], s3_server_names: list[str], tmp_path: Path) -> Lake:
    server = start_s3_server(s3_server_names[-1])
    server.create_bucket("lake")
    return Lake(server, tmp_path)


@pytest.mark.s3
@pytest.mark.parametrize(
    ("committer", "name"), [("magic", "__magic"), ("directory", "part-r-"), ("partitioned", "part-r-")]
)
def test_fault_322_the_jvm_ends_in_the_commit_of_a_job_to_s3(
    lake: Lake, tmp_path: Path, committer: str, name: str
) -> None:
    lake.submit_halfway(committer, tmp_path / "second")
    listed, uploads = list(lake.store.list()), list(lake.store.uploads())
    data = [info.key for info in listed if info.key.startswith("part-")]
    assert (len(data), len(uploads)) == (1, 1)  # half of the rows
    found = leftovers(listed, uploads, Earlier()).unfinished
    assert any(each.startswith(name) for each in found), found
    assert without_success(listed, data, Earlier()) == data[0]


def look_at(lake: Lake, *actions: str) -> list[str]:
    """The files that a worker with these rights would register, if no marker of the writer is known to come."""
    with S3Proxy(lake._server, Enforced({ACCESS_KEY: [Statement(actions, ("*",))]})) as proxy:
        store = S3Store(lake.uri, endpoint_url=proxy.endpoint_url, session=lake._server.session())
        drop_in = SimpleNamespace(outputs={"out": None}, on_unfinished=OnUnfinished.STOP, require_success_file=None)
        stores = SimpleNamespace(open_external=lambda location: store)
        listed = list(store.list())
        data = [info.key for info in listed if info.key.startswith("part-")]
        outputs = FinishedOutputs(drop_in, stores, lambda paths, managed: False, logging.getLogger("t"))  # type: ignore[arg-type]
        outputs.check(SimpleNamespace(region="t", attempt=1), "out", lake.uri, listed, data)  # type: ignore[arg-type]
        return data


@pytest.mark.s3
@pytest.mark.control
def test_fault_322_control_without_the_right_to_list_uploads_half_of_the_rows_are_registered(
    lake: Lake, tmp_path: Path
) -> None:
    lake.submit_halfway("directory", tmp_path / "second")
    with pytest.raises(RegionFailed, match="expected no temporary files of a writer there, found part-r-"):
        look_at(lake, "s3:ListBucket", "s3:ListBucketMultipartUploads")
    assert len(look_at(lake, "s3:ListBucket")) == 1


@pytest.mark.s3
@pytest.mark.parametrize("committer", ["magic", "directory", "partitioned"])
def test_a_commit_to_s3_that_has_ended_leaves_a_marker_and_no_work(lake: Lake, committer: str) -> None:
    with S3Proxy(lake._server) as proxy:
        lake.submit(committer, proxy)
    listed, uploads = list(lake.store.list()), list(lake.store.uploads())
    data = [info.key for info in listed if info.key.startswith("part-")]
    assert (len(data), uploads) == (2, [])
    assert leftovers(listed, uploads, Earlier()) == leftovers([], [], Earlier())
    assert without_success(listed, data, Earlier()) is None
