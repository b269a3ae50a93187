"""Regions whose data is on S3: real spark-submit over `s3a://`, every request under the policies of docs/s3.md."""

from __future__ import annotations

import os
import random
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from runtime_specs import region_spec, vertex
from s3_policy import Enforced, documented

from airflow_recovery.driver import RegionSpec, StoreSpec, VertexSpec, driver
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.driver.submit import QUIET_CONF, store_conf, submit_environment
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import ExternalObject, Outcome
from airflow_recovery.results.availability import AvailabilityState, probe_manifest
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import wait_until
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.jars import class_path_variables, s3a_jars
from scripts.s3_proxy import Answer, LostReply, S3Proxy, S3Request

pytestmark = [pytest.mark.spark, pytest.mark.s3]

PAGE = Path(__file__).parents[2] / "docs" / "s3.md"
APPLICATION = """
import sys, time
from pathlib import Path
from airflow_recovery.driver.driver import drive
from airflow_recovery.driver.region_spec import RegionSpec

for name in sys.argv[1:]:
    while not Path(name).exists():
        time.sleep(0.05)
    code = drive(RegionSpec.from_json(Path(name).read_text()))
    Path(name + ".part").write_text(str(code))
    Path(name + ".part").rename(name + ".code")
"""
"""The driver of region after region: one start of Spark is enough for this test."""


@dataclass
class Trouble:
    """What happens to requests: every so-manieth is told to slow down; the answer to an outcome's PUT is lost, once."""

    rng: random.Random
    storms: int = 0
    lost: int = 0

    def __call__(self, request: S3Request) -> Answer | LostReply | None:
        if request.is_conditional and "/recovery/" in f"/{request.key}" and self.lost == 0:
            self.lost += 1
            return LostReply()
        if request.bucket == "my-results" and self.rng.random() < 0.05:
            self.storms += 1
            return Answer(503, "SlowDown")
        return None


class Lake:
    """Journal and results of one run, reached by the driver through a proxy and by the test directly."""

    def __init__(self, server: S3Server, proxy: S3Proxy, folder: Path) -> None:
        self.name = uuid.uuid4().hex
        self.folder = folder
        self._server = server
        self._endpoint_url = proxy.endpoint_url

    def store(self, uri: str) -> S3Store:
        return S3Store(uri, endpoint_url=self._server.endpoint_url, session=self._server.session())

    def spec(
        self,
        region: str,
        attempt: int,
        *vertices: VertexSpec,
        inputs: tuple[PartitionManifest, ...] = (),
        externals: tuple[ExternalObject, ...] = (),
    ) -> RegionSpec:
        made = region_spec(self.folder, *vertices, inputs=inputs, externals=externals, region=region, attempt=attempt)
        journal, results = (f"s3://my-{name}/recovery/{self.name}" for name in ("journal", "results"))
        return replace(
            made,
            journal=StoreSpec(journal, self._endpoint_url, REGION),
            results=StoreSpec(results, self._endpoint_url, REGION),
            location=f"{results}/{region}/{attempt}",
        )

    def outcome(self, spec: RegionSpec) -> Outcome | None:
        return Journal(self.store(spec.journal.uri), spec.identity, writer="test").read_outcome(
            spec.region, spec.attempt
        )


def environment(folder: Path) -> dict[str, str]:
    base = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    credentials = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    return submit_environment({**base, "PATH": os.defpath, **credentials, **class_path_variables()})


@contextmanager
def submitted(specs: list[Path], like: RegionSpec, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One spark-submit that drives what is written to ``specs``, with the settings that the operator gives."""
    env = environment(folder)
    application = folder / "drive_many.py"
    application.write_text(APPLICATION)
    conf = {
        **QUIET_CONF,
        **store_conf(like.results, env),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    settings = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
    command = ["spark-submit", "--master", "local[2]", "--py-files", str(build_archive(like.job)), *settings]
    with (folder / "driver.log").open("w") as log:
        process = subprocess.Popen(
            [*command, str(application), *map(str, specs)],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def command_lines() -> str:
    """Those of all processes of this machine that can be seen."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


def test_fault_21_23_a_region_on_s3_is_written_read_lost_and_made_again(
    start_s3_server: Callable[[str], S3Server], s3_server_names: list[str], tmp_path: Path
) -> None:
    server = start_s3_server(s3_server_names[-1])
    for bucket in ("my-journal", "my-results"):
        server.create_bucket(bucket)
    policies = documented(PAGE.read_text())
    enforced = Enforced({ACCESS_KEY: policies["driver-journal"] + policies["driver-results"]})
    trouble = Trouble(random.Random(5))
    with S3Proxy(server, enforced, trouble) as proxy:
        lake = Lake(server, proxy, tmp_path)
        source = f"s3://my-results/recovery/{lake.name}/in"
        put = lake.store(source).put("0.csv", b"".join(b"%d\n" % number for number in range(20)))
        externals = (ExternalObject("raw", f"{source}/0.csv", put.size, put.etag),)
        paths = [tmp_path / f"{at}.json" for at in range(4)]

        def make(at: int, spec: RegionSpec) -> int:
            paths[at].with_suffix(".part").write_text(spec.to_json())
            paths[at].with_suffix(".part").rename(paths[at])
            code = Path(f"{paths[at]}.code")
            wait_until(
                code.exists,
                "the driver's exit code",
                describe=log_path.read_text,
                is_over=lambda: process.poll() is not None,
            )
            return int(code.read_text())

        log_path = tmp_path / "driver.log"
        first = lake.spec("doubled", 1, vertex("raw"), vertex("doubled", is_result=True), externals=externals)
        readers = (
            vertex("noisy", is_scratch=True, params={"salt": 1}),
            vertex("left", is_result=True),
            vertex("right", is_result=True),
        )
        with submitted(paths, first, tmp_path) as process:
            assert make(0, first) == driver.FINISHED, log_path.read_text()
            seen = command_lines()
            outcome = lake.outcome(first)
            assert outcome is not None
            (doubled,) = outcome.outputs
            assert doubled.location.startswith("s3://")
            assert doubled.rows == 20
            assert trouble.lost == 1  # the reply to the outcome's PUT: found to be our own

            lake.store(doubled.location).delete([doubled.objects[0].path])
            reader = lake.spec("read", 1, *readers, inputs=(doubled,))
            assert make(1, reader) == driver.FAILED
            failure = read_failure(reader)
            assert failure is not None
            assert classify(failure) is FailureClass.PARTITION_MISSING, failure
            assert probe_manifest(lake.store(doubled.location), doubled).state is AvailabilityState.MISSING

            again = lake.spec("doubled", 2, vertex("raw"), vertex("doubled", is_result=True), externals=externals)
            assert make(2, again) == driver.FINISHED, log_path.read_text()
            remade = lake.outcome(again)
            assert remade is not None
            reader = lake.spec("read", 2, *readers, inputs=remade.outputs)
            assert make(3, reader) == driver.FINISHED, log_path.read_text()
            environ = Path(f"/proc/{process.pid}/environ").read_text()
        done = lake.outcome(reader)
        assert done is not None
        assert [(output.result, output.rows) for output in done.outputs] == [("left", 20), ("right", 20)]
        for output in done.outputs:
            assert probe_manifest(lake.store(output.location), output).is_available
        assert not list(lake.store(reader.location).list("_scratch/"))

    assert trouble.storms > 0
    assert enforced.denied == []
    # Only a write that fails half way aborts its upload.
    assert enforced.unused(ACCESS_KEY) == {("s3:AbortMultipartUpload", "my-results/recovery/*")}

    assert "drive_many.py" in seen  # control: the driver's own was among those that were looked through
    assert SECRET_KEY in environ
    told = (seen, log_path.read_text(), *(path.read_text() for path in paths), *lake_texts(lake, first))
    assert not any(SECRET_KEY in text for text in told)


def hadoop_asks_until_it_ends(server: S3Server, folder: Path, bounds: Mapping[str, str], *, give_up_at: int) -> int:
    """The requests of one read by Hadoop's own shell, from a server that says "slow down"; its pauses are cut."""
    asked: list[S3Request] = []

    def storm(request: S3Request) -> Answer:
        asked.append(request)
        return Answer(503, "SlowDown")

    folder.mkdir()
    with S3Proxy(server, storm) as proxy:
        settings = store_conf(StoreSpec("s3://my-results", proxy.endpoint_url, REGION), {"AWS_ACCESS_KEY_ID": "set"})
        conf = {name.removeprefix("spark.hadoop."): value for name, value in settings.items()}
        conf = {**conf, "fs.s3a.retry.throttle.interval": "1ms", "fs.s3a.attempts.maximum": "1", **bounds}
        properties = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in conf.items())
        (folder / "core-site.xml").write_text(f"<configuration>{''.join(properties)}</configuration>")
        path = f"{folder}:{spark_home() / 'jars'}/*:{s3a_jars()}/*"
        command = ["java", "-Xmx256m", "-cp", path, "org.apache.hadoop.fs.FsShell", "-cat", "s3a://my-results/a"]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, env={**os.environ, **server.environment()}, stderr=log, stdout=log)
            try:
                wait_until(lambda: process.poll() is not None or len(asked) >= give_up_at, "the end of the storm")
            finally:
                process.kill()
                process.wait()
        if len(asked) < give_up_at:
            assert "503" in (folder / "log").read_text()
    return len(asked)


def test_fault_23_a_storm_without_end_ends_sparks_request(
    start_s3_server: Callable[[str], S3Server], s3_server_names: list[str], tmp_path: Path
) -> None:
    server = start_s3_server(s3_server_names[-1])
    server.create_bucket("my-results")
    # Each of nine times the SDK below asks twice (by default six times).
    assert hadoop_asks_until_it_ends(server, tmp_path / "ours", {}, give_up_at=24) == 18
    hadoops = {"fs.s3a.retry.throttle.limit": "20"}
    assert hadoop_asks_until_it_ends(server, tmp_path / "control", hadoops, give_up_at=24) >= 24


def lake_texts(lake: Lake, spec: RegionSpec) -> Iterator[str]:
    """Every object of the journal."""
    store = lake.store(spec.journal.uri)
    for each in store.list():
        yield store.get(each.key).body.decode(errors="replace")
