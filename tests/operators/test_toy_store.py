"""A store that this package does not have (`toy_store`, one file) holds the journal and the results of a recovery."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import toy_store
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import GROUP, Drivers, job_dag
from runtime_specs import region_spec, vertex, write_numbers
from tries import RUN_KEY, run_try

from airflow_recovery import locations
from airflow_recovery.checks import check_location
from airflow_recovery.doctor.result import Status
from airflow_recovery.doctor.stores import check_reach
from airflow_recovery.doctor.versions import check_archive
from airflow_recovery.driver import RegionSpec, StoreSpec, driver
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.paths import spark_path
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF, submit_environment
from airflow_recovery.errors import (
    ConfigurationError,
    Failure,
    LocationNotAllowed,
    RegionFailed,
    StoreAccessDenied,
)
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.manifest import PartitionManifest, ResultObject
from airflow_recovery.model.records import Outcome, RunIdentity
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.store import probe, register
from airflow_recovery.store.allowed import Source, decide
from airflow_recovery.store.scheme import options_variable
from airflow_recovery.store.schemes import packages_of
from airflow_recovery.testing.patience import HANG_S

JOURNAL, RESULTS = "toy://box/journal", "toy://box/results"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The scheme is registered, and its connection defined. Returns the folder of all boxes."""
    for name, value in {
        "TOY_ROOT": str(tmp_path / "toys"),
        "AIRFLOW_CONN_TOY": json.dumps({"conn_type": "toy", "password": toy_store.PASSWORD}),
        "AIRFLOW__RECOVERY__TOY_CONN_ID": "toy",
        "AIRFLOW__RECOVERY__JOURNAL": JOURNAL,
        "AIRFLOW__RECOVERY__RESULTS": RESULTS,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
    }.items():
        monkeypatch.setenv(name, value)
    register(toy_store.SCHEME)
    variable = options_variable("toy://box")  # a task sets it in its own environment
    monkeypatch.setenv(variable, "")
    monkeypatch.delenv(variable)
    yield tmp_path / "toys"
    forget()


def forget() -> None:
    locations._table().pop("toy", None)


class WritingDrivers(Drivers):
    """Each writes one object for each of its results."""

    def run(self, spec: RegionSpec, folder: Path) -> None:
        self.specs.append(spec)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        store = open_spec_store(spec.results)
        outputs = []
        for name in (each.name for each in spec.vertices if each.is_result):
            location = f"{spec.location}/{name}"
            info = store.put_if_absent(f"{location.removeprefix(f'{store.base_uri}/')}/part-0", spec.tag.encode())
            files = (ResultObject("part-0", info.size, info.etag),)
            outputs.append(PartitionManifest(name, location, files, 1, '{"type":"struct","fields":[]}'))
        finish_attempt(spec, AttemptResult(tuple(outputs), 2.0, None), logging.getLogger("tests"))


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> WritingDrivers:
    found = WritingDrivers()
    found.install(monkeypatch)
    return found


def regions() -> dict[str, SparkRegionOperator]:
    dag = job_dag("dagjobs.shapes:diamond")
    return {task.region: task for task in dag.tasks if isinstance(task, SparkRegionOperator)}


def fail() -> None:
    raise RegionFailed("the weather", Failure("RuntimeError", "the weather"))


def test_a_recovery_in_a_store_of_ones_own(toy: Path, tmp_path: Path, drivers: WritingDrivers) -> None:
    """One region fails and runs again, the other is kept, until its result is lost."""
    lake = tmp_path / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1")
    params = {"lake": str(lake)}
    tasks = regions()
    assert run_try(tasks["cleaned"], params=params)["decision"] == "ran"
    drivers.meanwhile = fail
    with pytest.raises(RegionFailed):
        run_try(tasks["left"], params=params)

    assert run_try(tasks["left"], params=params, try_number=2)["attempt"] == 2
    kept = run_try(tasks["cleaned"], params=params, try_number=2)
    assert (kept["decision"], kept["files_checked"]) == ("kept", 1)
    assert [spec.region for spec in drivers.specs] == ["cleaned", "left", "left"]
    assert {spec.journal for spec in drivers.specs} == {
        StoreSpec(JOURNAL, has_own_credentials=True, scheme="toy_store:ToyScheme")
    }
    assert (toy / "box" / "journal" / "d" / RUN_KEY).is_dir()

    (written,) = toy.glob("box/results/d/**/cleaned/part-0")
    assert drivers.specs[0].location == f"{RESULTS}/{written.parents[1].relative_to(toy / 'box' / 'results')}"
    written.unlink()
    assert run_try(tasks["cleaned"], params=params, try_number=3)["attempt"] == 2
    journal = Journal(open_stores(RecoverySettings.load()).journal, RunIdentity("d", RUN_KEY, GROUP), writer="test")
    state = journal.load(journal.list(["cleaned", "left"]))
    assert {name: [*state.of(name).attempts] for name in ("cleaned", "left")} == {"cleaned": [1, 2], "left": [1, 2]}


@pytest.mark.control
def test_control_a_store_that_nobody_has_registered_is_refused(toy: Path, drivers: WritingDrivers) -> None:
    forget()
    with pytest.raises(AirflowFailException, match=r"found 'toy://box/journal'. Other stores are not supported"):
        run_try(regions()["aside"])
    assert not toy.exists()


def test_the_password_is_that_of_the_connection_in_the_task_and_in_the_driver(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = open_stores(RecoverySettings.load())
    probe(stores.journal)
    assert toy_store.PASSWORD not in json.dumps([vars(stores.journal_spec), vars(stores.results_spec)])
    with pytest.raises(StoreAccessDenied):
        open_spec_store(stores.journal_spec).put("a", b"")
    for name, value in stores.driver_env().items():
        monkeypatch.setenv(name, value)
    open_spec_store(stores.journal_spec).put("a", b"")
    monkeypatch.setenv("AIRFLOW_CONN_TOY", json.dumps({"conn_type": "aws"}))
    with pytest.raises(ConfigurationError, match=r"\[recovery\] toy_conn_id to be of type toy, found 'aws'"):
        _ = open_stores(RecoverySettings.load()).journal


def test_the_scheme_is_read_wherever_a_location_is(toy: Path) -> None:
    assert check_location("toy://box/x/", "here") == "toy://box/x"
    assert decide("toy://box/x", Source.DAG_FILE).root == "toy://box"
    with pytest.raises(LocationNotAllowed, match="toy://<box>/<prefix>"):
        decide("toy://user@box/x", Source.DAG_FILE)
    with pytest.raises(LocationNotAllowed, match="Nothing was sent"):
        open_stores(RecoverySettings.load()).open_external("toy://other/x")
    assert spark_path("toy://box/x") == f"file://{toy}/box/x"
    assert [each.status.name for each in check_reach(JOURNAL, RESULTS)] == ["OK", "OK"]


def test_two_stores_of_one_name_are_refused() -> None:
    class Mine(toy_store.ToyScheme):
        name = "s3"

    with pytest.raises(ConfigurationError, match=r"no other store has, found 's3'.*S3Scheme"):
        register(Mine())
    with pytest.raises(ConfigurationError, match="not in use for something else"):
        register(type("Web", (toy_store.ToyScheme,), {"name": "http"})())


@pytest.mark.slow
def test_doctor_looks_whether_a_driver_can_import_the_store(toy: Path) -> None:
    (found,) = check_archive(dict(os.environ), (JOURNAL, RESULTS))
    assert found.status is Status.OK, found


FINDS_IT = """
import sys
from airflow_recovery.locations import scheme_of
from airflow_recovery.store import open_store
first = scheme_of("s3://b/x"), "toy_store" in sys.modules
print(*first, scheme_of("toy://box/x"), type(open_store("toy://box/x")).__name__)
"""


@pytest.mark.slow
def test_an_installed_package_names_its_store_in_an_entry_point(tmp_path: Path) -> None:
    info = tmp_path / "toy_store-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-store\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{locations.ENTRY_POINTS}]\ntoy = toy_store:SCHEME\n")
    path = os.pathsep.join([str(tmp_path), str(Path(toy_store.__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", FINDS_IT],
        env={**os.environ, "PYTHONPATH": path, "TOY_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.stdout.split() == ["s3", "False", "toy", "ToyStore"], done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_is_told_of_the_store_and_spark_reads_and_writes_by_another_name(toy: Path, tmp_path: Path) -> None:
    """A process of spark-submit that has nothing of the tests but the archive with the job and the store's file."""
    stores = open_stores(RecoverySettings.load())
    raw, doubled = vertex("raw"), vertex("doubled", is_result=True)
    spec = region_spec(tmp_path, raw, doubled, externals=write_numbers(tmp_path / "in"))
    spec = replace(
        spec, journal=stores.journal_spec, results=stores.results_spec, location=f"{RESULTS}/dag/r/group/r/1-x"
    )
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    conf = {**QUIET_CONF, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    archive = build_archive(spec.job, packages_of(spec.journal, spec.results))
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    done = subprocess.run(
        ["spark-submit", "--master", "local[2]", "--py-files", str(archive), *settings, APPLICATION, str(path)],
        cwd=tmp_path,
        env={**submit_environment(environment), **stores.driver_env()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == driver.FINISHED, done.stdout
    outcome = Journal(stores.journal, spec.identity, writer="test").read_outcome(spec.region, spec.attempt)
    assert isinstance(outcome, Outcome)
    (output,) = outcome.outputs
    assert (output.location, output.rows) == (f"{spec.location}/doubled", 20)
    listed = {info.key: info.size for info in stores.results.list("dag/r/group/r/1-x/doubled/part-")}
    assert listed == {f"dag/r/group/r/1-x/doubled/{file.path}": file.size for file in output.objects}
    assert listed
