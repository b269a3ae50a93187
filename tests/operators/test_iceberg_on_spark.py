"""The tasks of a job one of whose results is a snapshot of an Iceberg table, on a real Spark that has no Iceberg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from airflow.sdk.exceptions import AirflowFailException
from job_tasks import GROUP, job_dag
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tries import run_try, state_in

from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.results.tables import tag_of
from airflow_recovery.testing.spark_cluster import ConnectServer

pytestmark = [pytest.mark.spark, pytest.mark.drill]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, "i8")})


def test_fault_170_171_a_snapshot_that_is_lost_is_made_again_for_its_reader(
    recovery: Path, connect: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = recovery / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1\n\n41\n")
    extra = {"type": "sql", "uri": f"sqlite:///{recovery}/c.db", "warehouse": f"file://{recovery}/w"}
    spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": connect.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "generic", "extra": json.dumps(extra)}))
    catalog = load_catalog("lake", **extra)
    catalog.create_namespace("db")
    catalog.create_table("db.cleaned", rows().schema).append(rows(5))
    tasks = {task.region: task for task in job_dag("dagjobs.tabled_lake:tabled").tasks if hasattr(task, "region")}

    def ran(region: str) -> str:
        return str(run_try(tasks[region], params={"lake": str(lake)})["decision"])

    def manifest(region: str) -> PartitionManifest:
        current = state_in(recovery, GROUP, region).of(region).current
        assert current is not None
        assert current.outcome is not None
        return current.outcome.outputs[0]

    def cleaned() -> Table:
        return catalog.load_table("db.cleaned")

    def reported() -> list[Any]:
        return pyarrow.parquet.read_table(manifest("report").location.removeprefix("file://")).to_pylist()

    before = cleaned().metadata.current_snapshot_id
    assert before is not None
    assert ran("cleaned") == "ran"
    made = manifest("cleaned").objects[0].path
    key = RegionKey.of(RunIdentity("d", "date-2024-01-02T000000Z", GROUP), "cleaned")
    assert cleaned().metadata.refs[tag_of(f"file://{recovery}/journal", key, 1)].snapshot_id == int(made)

    cleaned().manage_snapshots().rollback_to_snapshot(before).commit()
    with pytest.raises(AirflowFailException, match=r"snapshot \d+ of iceberg://lake/db.cleaned was rolled back"):
        ran("report")
    assert ran("cleaned") == "ran"
    cleaned().overwrite(rows(7))
    assert [ran("cleaned"), ran("report")] == ["kept", "ran"]
    assert reported() == [{"total": 42}]
    assert cleaned().scan().to_arrow()["n"].to_pylist() == [7]


def test_a_spark_without_delta_is_told_what_it_lacks(
    recovery: Path, connect: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = recovery / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1\n")
    spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": connect.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    task = job_dag("dagjobs.tabled:tabled").task_dict[f"{GROUP}.cleaned"]
    with pytest.raises(AirflowFailException, match=r"data source: delta.* the two settings that docs/tables.md names"):
        run_try(task, params={"lake": str(lake)})
    assert not (lake / "cleaned").exists()
