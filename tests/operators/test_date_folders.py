"""Fault 234 with a real Spark: each date replaces its own partition of one table, and the first one must run again."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from paths import CODE
from tries import run_try, task_context

from airflow_recovery.errors import JobDefinitionError, OutputAltered
from airflow_recovery.operators import RecoverableSparkSubmitOperator

pytestmark = [pytest.mark.spark]
DAYS = ("2024-01-02", "2024-01-03")
DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}


def task_of(folder: Path, out: str, how: str, code: str = "1", **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=str(CODE / "partition_application.py"),
            application_args=["{{ ds }}", "{output:table}", how, code],
            outputs={"table": f"{folder}/table{out}"},
            conf=DYNAMIC,
            **given,
        )


def tried(task: Any, day: str) -> str:
    date = datetime.fromisoformat(f"{day}T00:00:00+00:00")
    context = task_context("t", run_id=f"r-{day}", logical_date=date)
    return str(run_try(task, {**context, "ds": day})["decision"])


def table(folder: Path) -> list[tuple[str, str]]:
    rows = pyarrow.dataset.dataset(folder / "table", partitioning="hive", exclude_invalid_files=True).to_table()
    return sorted({(str(row["day"]), row["code"]) for row in rows.to_pylist()})


def test_fault_234_with_a_folder_for_each_date_the_first_one_runs_again_alone(
    recovery: Path, outside_connect: None
) -> None:
    task = task_of(recovery, "/day={{ ds }}", "folder")
    assert [tried(task, day) for day in (*DAYS, *DAYS)] == ["ran", "ran", "kept", "kept"]
    assert tried(task_of(recovery, "/day={{ ds }}", "folder", "2"), DAYS[0]) == "ran"
    assert table(recovery) == [(DAYS[0], "2"), (DAYS[1], "1")]
    assert tried(task, DAYS[1]) == "kept"


def test_fault_234_control_with_one_folder_the_first_one_can_not_run_again(
    recovery: Path, outside_connect: None
) -> None:
    with pytest.raises(JobDefinitionError, match="to which all dates write"):
        task_of(recovery, "", "partition")
    task = task_of(recovery, "", "partition", idempotent=True)
    assert [tried(task, day) for day in DAYS] == ["ran", "ran"]
    with pytest.raises((OutputAltered, AirflowException), match="either would take their data along"):
        tried(task_of(recovery, "", "partition", "2", idempotent=True), DAYS[0])
    assert table(recovery) == [(day, "1") for day in DAYS]
