"""What is looked at of a vertex's Iceberg table before its attempt is claimed, and what its driver is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from expected_errors import fails_with
from job_tasks import GROUP, Drivers, job_dag
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField
from tries import run_try, state_in

from airflow_recovery.driver.stores import catalog_variable, lend_catalogs
from airflow_recovery.errors import RecoveryError
from airflow_recovery.hooks.tables import without_secrets
from airflow_recovery.results.tables import Tables
from airflow_recovery.task import region_program

SECRETS = {"credential": "id:s3cret", "token": "t0ken", "s3.access-key-id": "AKIA", "s3.secret-access-key": "s3cret"}
OPEN = {"type": "rest", "uri": "https://catalog/api", "warehouse": "s3://lake", "s3.endpoint": "http://127.0.0.1:9"}


@pytest.fixture
def lake(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (recovery / "a.csv").write_text("1\n")
    return recovery


def connect(monkeypatch: pytest.MonkeyPatch, name: str = "lake", /, **extra: str) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "generic", "extra": json.dumps(extra)}))


def catalog_in(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "lake") -> Catalog:
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
    connect(monkeypatch, name, **properties)
    catalog = load_catalog(name, **properties)
    catalog.create_namespace("db")
    return catalog


def make_cleaned(lake: Path, **given: Any) -> None:
    run_try(job_dag("dagjobs.tabled_lake:tabled", **given).task_dict[f"{GROUP}.cleaned"], params={"lake": str(lake)})


def in_two_catalogs(folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_one: bool = True) -> Any:
    """The task of a region with two tables, one by each catalog's name; ``is_one``: they are the same one."""
    one, other = (catalog_in(folder, monkeypatch, name) for name in ("lake", "lake2"))
    cleaned = one.create_table("db.cleaned", Schema(NestedField(1, "n", LongType(), required=False)))
    if is_one:
        other.register_table("db.kept", cleaned.metadata_location)
    else:
        other.create_table("db.kept", cleaned.schema())
    tasks = job_dag("dagjobs.named_twice:named_twice").task_dict
    [task] = [task for key, task in tasks.items() if not key.endswith("publish")]
    return task


def refused(lake: Path, said: str, **given: Any) -> None:
    with pytest.raises((AirflowException, RecoveryError), match=said):
        make_cleaned(lake, **given)
    assert state_in(lake, GROUP, "cleaned").of("cleaned").attempts == {}, "nothing is claimed"


def test_a_table_that_is_missing_is_no_reason_to_refuse(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog_in(lake, monkeypatch)
    make_cleaned(lake)
    assert [spec.region for spec in drivers.specs] == ["cleaned"]


def test_a_catalog_that_gives_no_answer_is_asked_again_by_the_next_try(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, type="rest", uri="http://127.0.0.1:9/", credential="id:s3cret")
    refused(lake, r"iceberg://lake/db\.cleaned gave no answer")
    catalog_in(lake, monkeypatch)
    make_cleaned(lake)
    assert len(drivers.specs) == 1


def test_control_nobody_asks_the_catalog_before_the_claim(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, type="rest", uri="http://127.0.0.1:9/")
    monkeypatch.setattr(Tables, "iceberg", lambda *_: None)
    make_cleaned(lake)
    assert len(drivers.specs) == 1, "a driver is started for nothing"


def test_a_catalog_that_nobody_configured_is_refused_without_its_secrets(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, type="nothing-of-this-name", **{"s3.secret-access-key": "s3cret"})
    refused(lake, r"Expected the catalog 'lake' .*'nothing-of-this-name' is not a valid")
    connect(monkeypatch, uri="ftp://ann:s3cret@db")
    with fails_with("catalog-unknown", by=AirflowException, catalog="lake") as told:
        make_cleaned(lake)
    assert "s3cret" not in str(told.value)


def test_partitions_that_are_not_written_are_refused(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = Schema(NestedField(1, "n", DoubleType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    catalog_in(lake, monkeypatch).create_table("db.cleaned", schema, partition_spec=spec)
    refused(lake, r"iceberg://lake/db\.cleaned: expected partitions by .*, found identity\(n\) of double")


def test_one_table_by_two_catalogs_is_refused(lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    task = in_two_catalogs(lake, monkeypatch)
    with fails_with("table-of-two-names", by=(AirflowException, RecoveryError)):
        run_try(task, params={"lake": str(lake)})
    assert drivers.specs == []


def test_two_tables_of_two_catalogs_are_not(lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    run_try(in_two_catalogs(lake, monkeypatch, is_one=False), params={"lake": str(lake)})
    assert len(drivers.specs) == 1


def test_control_without_a_look_at_names_one_table_has_two(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_program, "check_names", lambda *_: None)
    run_try(in_two_catalogs(lake, monkeypatch), params={"lake": str(lake)})
    assert len(drivers.specs) == 1


def test_a_catalog_of_this_machine_is_none_of_a_driver_on_a_cluster(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    catalog_in(lake, monkeypatch)
    refused(lake, r"a driver in deploy mode cluster can ask, found one of a file", deploy_mode="cluster", durable=False)
    make_cleaned(lake, deploy_mode="client")
    assert len(drivers.specs) == 1


def test_a_driver_is_told_of_a_catalog_what_is_no_secret(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert without_secrets(OPEN | SECRETS) == OPEN
    for uri in ("postgresql://ann:s3cret@db/lake", "postgresql://ann@db/lake", "https://catalog?token=s3cret"):
        assert without_secrets({"type": "sql", "uri": uri}) == {"type": "sql"}
    catalog_in(lake, monkeypatch)
    make_cleaned(lake)
    [spec] = drivers.specs
    assert spec.catalogs["lake"]["type"] == "sql"
    monkeypatch.setenv(catalog_variable("known"), "{}")
    monkeypatch.setenv(catalog_variable("lake"), "")
    monkeypatch.delenv(catalog_variable("lake"))
    lend_catalogs({"lake": OPEN, "known": OPEN})
    told = [json.loads(os.environ[catalog_variable(name)]) for name in ("lake", "known")]
    assert told == [OPEN, {}], "what the environment says is more"


def test_fault_231_a_source_in_the_folder_of_a_table_that_the_job_writes_is_refused(
    lake: Path, drivers: Drivers
) -> None:
    """`dagjobs.updated`: what `raw` reads is the table of `cleaned`."""
    (lake / "cleaned").mkdir()
    (lake / "cleaned" / "a.csv").write_text("1\n")
    task = job_dag("dagjobs.updated:updated").task_dict[f"{GROUP}.cleaned"]
    with fails_with("job-reads-what-it-writes", by=(AirflowException, RecoveryError)):
        run_try(task, params={"lake": str(lake)})
    assert state_in(lake, GROUP, "cleaned").of("cleaned").attempts == {}, "nothing is claimed"


@pytest.mark.control
def test_fault_231_control_nobody_looks_at_what_a_source_reads(
    lake: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lake / "cleaned").mkdir()
    (lake / "cleaned" / "a.csv").write_text("1\n")
    monkeypatch.setattr(region_program, "may_list", lambda *_: False)
    run_try(job_dag("dagjobs.updated:updated").task_dict[f"{GROUP}.cleaned"], params={"lake": str(lake)})
    assert len(drivers.specs) == 1
