"""`dags/examples/tables.py` as it is written, on tables of pyiceberg's: a failure, and one that is rolled back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pipeline import AFTER_THE_EXAMPLES_BEGIN, DagRun, Pipeline, empty_folder, fresh_day
from pyiceberg.catalog.sql import SqlCatalog

pytestmark = [pytest.mark.airflow, pytest.mark.s3]

FLIGHTS = pa.table({"carrier": ["UA", "AA", "MQ", "B6"], "delay": pa.array([11, 33, None, 20], "i8")})


@pytest.fixture
def lake(pipeline: Pipeline) -> Iterator[SqlCatalog]:
    """All tables but `late`, each with a snapshot; and the connection that the example names."""
    folder = empty_folder(pipeline.folder / "lake_of_tables")
    extra = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    catalog = SqlCatalog("lake", **extra)
    catalog.create_namespace("db")
    for name in ("flights", "arrived", "cancelled"):
        rows = FLIGHTS.select(["carrier"]) if name == "cancelled" else FLIGHTS
        catalog.create_table(f"db.{name}", rows.schema).append(rows)
    connection = {"connection_id": "lake", "conn_type": "generic", "extra": json.dumps(extra)}
    pipeline.airflow.api("POST", "/connections", connection)
    yield catalog
    pipeline.airflow.api("DELETE", "/connections/lake")


def carriers(lake: SqlCatalog, name: str) -> list[Any]:
    return sorted(lake.load_table(f"db.{name}").scan().to_arrow()["carrier"].to_pylist())


def decisions(run: DagRun) -> dict[str, str]:
    return {task: run.said(task)["decision"] for task in ("arrived", "cancelled", "late")}


def test_fault_170_a_failed_step_and_a_table_that_was_rolled_back_run_again_and_no_other(
    pipeline: Pipeline, lake: SqlCatalog
) -> None:
    before = lake.load_table("db.arrived").metadata.current_snapshot_id
    assert before is not None
    run = pipeline.run("tables", day=fresh_day(AFTER_THE_EXAMPLES_BEGIN))
    run.group_id = "~28operators~29"
    failed = run.start().ends("failed")
    assert failed.executions() == {"arrived": 1, "cancelled": 1, "late": 3}
    assert "Table does not exist: db.late" in run.log("late")
    assert carriers(lake, "arrived") == ["AA", "B6", "UA"]
    assert carriers(lake, "cancelled") == ["MQ"]

    # The table is made; and somebody rolls back what the failed step reads.
    lake.create_table("db.late", FLIGHTS.schema)
    lake.load_table("db.arrived").manage_snapshots().rollback_to_snapshot(before).commit()
    run.clear(only_failed=True)
    first = run.ends()
    assert first.ran_since(failed) == {"arrived": 1, "late": 1}
    lost = json.dumps(first.attempts["arrived"][1].objects["lost"])
    assert "was rolled back: branch 'main' is at its ancestor" in lost
    assert run.tries("cancelled") == 1
    assert carriers(lake, "late") == ["AA", "B6"]

    # Whoever commits on top changes nothing of a result.
    lake.load_table("db.late").append(FLIGHTS)
    run.clear()
    second = run.ends()
    assert second.ran_since(first) == {}
    assert decisions(run) == dict.fromkeys(("arrived", "cancelled", "late"), "kept")

    # Another snapshot of the input.
    lake.load_table("db.flights").append(FLIGHTS.slice(1, 1))
    run.clear()
    third = run.ends()
    assert third.ran_since(second) == {"arrived": 1, "cancelled": 1, "late": 1}
    assert carriers(lake, "late") == ["AA", "AA", "B6"]
