"""Fault 230 in Airflow: one Delta table that a task reads and writes, a date after the other."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pipeline import DagRun, Pipeline, empty_folder

pytestmark = [pytest.mark.airflow, pytest.mark.s3]


def balance(table: Path) -> int:
    return int(deltalake.DeltaTable(str(table)).to_pyarrow_table()["balance"][0].as_py())


def put(table: Path, rows: int) -> None:
    deltalake.write_deltalake(str(table), pa.table({"balance": pa.array([rows], "i8")}), mode="overwrite")


def a_run(pipeline: Pipeline) -> DagRun:
    run = pipeline.run("balances")
    run.group_id = "~28operators~29"
    return run


def test_fault_230_a_table_that_is_read_and_written_gets_each_date_once(pipeline: Pipeline) -> None:
    table = empty_folder(pipeline.folder / "lake" / "balances")
    put(table, 100)
    first, second = a_run(pipeline), a_run(pipeline)
    (first.gates / "die").touch()
    begun = first.start().ends()
    assert begun.executions() == {"add": 2}, "the task was killed behind its first commit"
    assert balance(table) == 110

    first.clear()
    assert first.ends().ran_since(begun) == {}
    assert (first.said("add")["decision"], balance(table)) == ("kept", 110)

    assert second.start().ends().executions() == {"add": 1}
    assert balance(table) == 120
    for run in (first, second):
        run.clear()
        run.ends()
        assert (run.said("add")["decision"], balance(table)) == ("kept", 120)

    # The first date must run again, and the second one has committed since.
    answer = first.recovery("restart", "add")
    refused = first.ends("failed")
    assert refused.executions() == {"add": 2}, answer
    assert "expected no commit by others after it, found 3." in first.log("add")
    assert balance(table) == 120
