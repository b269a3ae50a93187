"""Drivers of a Spark whose Python has nothing but the standard library, as in a stock image; the journal is remote."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import botocore
import pytest
from bare_python import bare_environment, make_bare_python
from cloud_servers import CloudServer
from runtime_specs import region_spec, vertex, write_numbers

from airflow_recovery.driver import RegionSpec, StoreSpec, driver
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.store_sdks import _check_fits, sdk_archives, sdks_for
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import Outcome
from airflow_recovery.store.cloud import OBSTORE
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.store.s3_scheme import BOTOCORE
from airflow_recovery.store.scheme import options_variable
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import REGION
from airflow_recovery.testing.spark_cluster import spark_home
from scripts.sparks import NEWEST, installed_spark

WRITES_ONCE = """
import sys
from pathlib import Path
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.driver.store_sdks import provide_sdk
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import ObjectExists

uri, endpoint, region, *sdk = sys.argv[1:]
for archive in sdk:
    provide_sdk(Path(archive))
store = open_spec_store(StoreSpec(uri, endpoint, region))
store.put_if_absent("a", b"1")
try:
    store.put_if_absent("a", b"2")
except ObjectExists:
    import botocore
    print(botocore.__version__, "/airflow-recovery-s3-sdk-" in botocore.__file__)
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_bare_python(tmp_path_factory.mktemp("bare")))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where archives lie: another folder for each test."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def journal(one_s3_server: S3Server) -> S3Store:
    uri = f"s3://recovery-tests/{uuid.uuid4().hex}"
    return S3Store(uri, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session())


Write = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def write(bare_python: str, one_s3_server: S3Server, journal: S3Store) -> Write:
    """Have a Python with the driver's archive alone write an object of the journal twice."""

    def call(*sdk: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        code = os.pathsep.join(filter(None, [str(build_archive("regionjobs.numbers:numbers")), str(path or "")]))
        where = [journal.base_uri, one_s3_server.endpoint_url, REGION]
        return subprocess.run(
            [bare_python, "-c", WRITES_ONCE, *where, *map(str, sdk)],
            env=bare_environment(code),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )

    return call


def botocore_of(folder: Path, version: str) -> Path:
    """A folder as of ``pip install --target`` with a botocore that can do nothing."""
    for name in ("botocore", f"botocore-{version}.dist-info"):
        (folder / name).mkdir(parents=True)
    (folder / "botocore" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (folder / f"botocore-{version}.dist-info" / "METADATA").write_text(f"Name: botocore\nVersion: {version}\n")
    return folder


@pytest.mark.slow
@pytest.mark.s3
def test_fault_155_a_python_without_an_sdk_writes_the_journal_with_the_workers(write: Write, journal: S3Store) -> None:
    done = write(sdk_archives("s3://b")[0])
    assert done.stdout.split() == [botocore.__version__, "True"], done.stderr
    assert journal.get("a").body == b"1"


@pytest.mark.slow
@pytest.mark.s3
def test_fault_155_control_without_the_archive_there_is_none(write: Write, journal: S3Store) -> None:
    done = write()
    assert "No module named 'botocore'" in done.stderr
    assert [*journal.list()] == []


@pytest.mark.slow
@pytest.mark.s3
def test_fault_155_a_version_that_knows_no_conditional_write_is_replaced(write: Write, tmp_path: Path) -> None:
    done = write(sdk_archives("s3://b")[0], path=botocore_of(tmp_path / "old", "1.34.162"))
    assert done.stdout.split() == [botocore.__version__, "True"], done.stderr


@pytest.mark.slow
@pytest.mark.s3
def test_one_that_will_do_is_left_alone(write: Write, tmp_path: Path) -> None:
    done = write(sdk_archives("s3://b")[0], path=botocore_of(tmp_path / "new", "1.99.0"))
    assert "No module named 'botocore.config'" in done.stderr


def test_the_archive_is_small_and_built_once() -> None:
    archive = sdk_archives("s3://b")[0]
    assert sdk_archives("s3://b")[0] == archive
    assert archive.stat().st_size < 2_000_000
    names = [name.split("/") for name in ZipFile(archive).namelist()]
    services = {folders[2] for folders in names if folders[:2] == ["botocore", "data"] and len(folders) > 3}
    assert services == {"s3", "sts", "sso", "sso-oidc", "signin"}


def on_s3(spec: RegionSpec, journal: S3Store, server: S3Server) -> RegionSpec:
    return replace(spec, journal=StoreSpec(journal.base_uri, server.endpoint_url, REGION))


CLOUD_WRITES_ONCE = """
import sys
from pathlib import Path
from airflow_recovery.store.scheme import StoreSpec
from airflow_recovery.driver.store_sdks import provide_sdk
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.errors import ObjectExists

uri, endpoint, *sdk = sys.argv[1:]
for archive in sdk:
    provide_sdk(Path(archive))
store = open_spec_store(StoreSpec(uri, endpoint, has_own_credentials=True))
store.put_if_absent("a", b"1")
try:
    store.put_if_absent("a", b"2")
except ObjectExists:
    import obstore
    print("/airflow-recovery-cloud-sdk-" in obstore.__file__)
"""


def cloud_environment(server: CloudServer, uri: str, python_path: str) -> dict[str, str]:
    return bare_environment(python_path) | {options_variable(uri): json.dumps(dict(server.access().options))}


def test_a_python_without_a_client_writes_to_a_cloud_with_the_workers(
    bare_python: str, cloud_server: CloudServer
) -> None:
    uri = f"{cloud_server.create_bucket('recovery-tests')}/{uuid.uuid4().hex}"
    environment = cloud_environment(cloud_server, uri, str(build_archive("regionjobs.numbers:numbers")))
    command = [bare_python, "-c", CLOUD_WRITES_ONCE, uri, str(cloud_server.access().endpoint_url)]
    for given, said in ((sdk_archives(uri), "True"), ([], "airflow-recovery[")):
        done = subprocess.run(
            [*command, *map(str, given)], env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert said in done.stdout + done.stderr, done.stderr
    assert cloud_server.open(uri).get("a").body == b"1"


WHEEL = "Wheel-Version: 1.0\nTag: cp3{minor}-{abi}-{platform}\n"
HERE = f"manylinux_2_17_{platform.machine()}"
NOW = sys.version_info.minor


@pytest.mark.parametrize(
    ("minor", "abi", "of"),
    [(NOW, "abi3", HERE), (NOW - 1, "abi3", HERE), (NOW, f"cp3{NOW}", HERE), (11, "abi3", "musllinux_1_2_x86_64")],
)
def test_a_compiled_client_is_taken_where_it_runs(minor: int, abi: str, of: str) -> None:
    wheel = WHEEL.format(minor=minor, abi=abi, platform=of)
    if of == HERE:
        _check_fits(OBSTORE, wheel)
        return
    with pytest.raises(RuntimeError, match=r"does not run here.*Install obstore into the image"):
        _check_fits(OBSTORE, wheel)


@pytest.mark.parametrize(
    ("minor", "abi", "of"),
    [
        (NOW + 1, "abi3", HERE),
        (NOW - 1, f"cp3{NOW - 1}", HERE),
        (NOW, "abi3", "manylinux_2_17_vax"),
        (NOW, "abi3", "any"),
    ],
)
def test_a_compiled_client_of_another_python_or_machine_is_refused_by_name(minor: int, abi: str, of: str) -> None:
    with pytest.raises(RuntimeError, match=rf"cp3{minor}-{abi}-{of}.*does not run here"):
        _check_fits(OBSTORE, WHEEL.format(minor=minor, abi=abi, platform=of))


@pytest.mark.spark
def test_a_stock_spark_finishes_its_attempt_on_a_cloud(
    bare_python: str, cloud_server: CloudServer, tmp_path: Path
) -> None:
    """The journal is in the cloud, the results are in a folder: Spark needs no connector."""
    uri = f"{cloud_server.create_bucket('recovery-tests')}/{uuid.uuid4().hex}"
    spec = region_spec(
        tmp_path, vertex("raw"), vertex("doubled", is_result=True), externals=write_numbers(tmp_path / "in")
    )
    spec = replace(spec, journal=StoreSpec(uri, cloud_server.access().endpoint_url, has_own_credentials=True))
    code, said = submitted(spec, tmp_path, bare_python, spark_home(), cloud_environment(cloud_server, uri, ""))

    assert code == driver.FINISHED, said
    outcome = Journal(cloud_server.open(uri), spec.identity, writer="test").read_outcome(spec.region, spec.attempt)
    assert isinstance(outcome, Outcome)
    assert [(output.result, output.rows) for output in outcome.outputs] == [("doubled", 20)]
    assert read_failure(spec) is None


@pytest.mark.spark
@pytest.mark.s3
def test_a_stock_spark_finishes_its_attempt_on_s3(
    bare_python: str, one_s3_server: S3Server, journal: S3Store, tmp_path: Path
) -> None:
    """Neither botocore nor pendulum, Jinja, pydantic, pandas, numpy, pyarrow or Airflow are there."""
    spec = region_spec(
        tmp_path, vertex("raw"), vertex("doubled", is_result=True), externals=write_numbers(tmp_path / "in")
    )
    spec = on_s3(spec, journal, one_s3_server)
    assert sdks_for(spec.journal.uri, spec.results.uri) == (BOTOCORE,)
    code, said = submitted(spec, tmp_path, bare_python, spark_home())

    assert code == driver.FINISHED, said
    outcome = Journal(journal, spec.identity, writer="test").read_outcome(spec.region, spec.attempt)
    assert isinstance(outcome, Outcome)
    assert [(output.result, output.rows) for output in outcome.outputs] == [("doubled", 20)]
    assert outcome.accumulators == (("calls", 1), ("rows seen", 20))
    assert read_failure(spec) is None


@pytest.mark.drill
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.parametrize("series", NEWEST)
def test_every_spark_that_users_have_runs_a_region(
    series: str, one_s3_server: S3Server, journal: S3Store, tmp_path: Path
) -> None:
    """With a UDF on executors, a digest of rows, and scratch that is written once and read twice."""
    spark = installed_spark(series)
    names = ("raw", "doubled", "noisy", "left", "right")
    vertices = tuple(vertex(name, is_result=name in ("left", "right"), is_scratch=name == "noisy") for name in names)
    doubled = replace(vertices[1], is_result=True, is_digested=True)
    vertices = (vertices[0], doubled, replace(vertices[2], params={"salt": 1}), *vertices[3:])
    spec = region_spec(tmp_path, *vertices, externals=write_numbers(tmp_path / "in"))
    spec = on_s3(spec, journal, one_s3_server)
    code, said = submitted(spec, tmp_path, str(spark.python), spark.home)

    assert code == driver.FINISHED, said
    outcome = Journal(journal, spec.identity, writer="test").read_outcome(spec.region, spec.attempt)
    assert isinstance(outcome, Outcome)
    assert {output.result: output.rows for output in outcome.outputs} == {"doubled": 20, "left": 20, "right": 20}
    assert [output.result for output in outcome.outputs if output.digest is not None] == ["doubled"]


def submitted(
    spec: RegionSpec, folder: Path, python: str, home: Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    path = folder / "spec.json"
    path.write_text(spec.to_json())
    conf = {**QUIET_CONF, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [
            *(str(home / "bin" / "spark-submit"), "--master", "local[2]", "--py-files", str(build_archive(spec.job))),
            *(*settings, APPLICATION, str(path), *map(str, sdk_archives(spec.journal.uri, spec.results.uri))),
        ],
        cwd=folder,
        env={**(environment or bare_environment("")), "SPARK_HOME": str(home), "PYSPARK_PYTHON": python},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    return done.returncode, done.stdout
