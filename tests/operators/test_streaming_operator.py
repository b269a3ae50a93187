"""Fault 232: a query of Structured Streaming as an operator. Its checkpoint goes with the attempt's output.

A real Spark, by spark-submit. The query reads what is there and ends. The first attempt dies behind that.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from paths import CODE
from tries import run_try, state_in

from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator

pytestmark = [pytest.mark.spark]
HOW = ["file sink", "append"]
SETTING = "spark.sql.streaming.checkpointLocation"


@pytest.fixture
def lake(recovery: Path, outside_connect: None) -> Path:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1\n2\n3\n4\n5\n")
    return recovery


def query(folder: Path, how: str, checkpoint: str, *, out: str | None = None, **given: Any) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="t",
            application=str(CODE / "streaming_application.py"),
            application_args=[f"{folder}/lake", checkpoint, "{output:o}", how, f"{folder}/died"],
            inputs={"lake": f"{folder}/lake"},
            outputs={"o": out},
            **given,
        )


def rows(folder: Path) -> int:
    """Of the files that are registered. Spark's own record of a file sink is among them."""
    current = state_in(folder, OPERATORS_GROUP, "t").of("t").current
    assert current is not None
    assert current.outcome is not None
    (output,) = current.outcome.outputs
    place = Path(output.location.removeprefix("file://"))
    files = [place / one.path for one in output.objects if one.path.endswith(".parquet")]
    return sum(pyarrow.parquet.read_table(file).num_rows for file in files)


def die_and_run_again(folder: Path, task: Any) -> None:
    with pytest.raises(RegionFailed):
        run_try(task)
    (folder / "lake" / "b.csv").write_text("6\n")
    assert run_try(task)["decision"] == "ran"
    assert run_try(task)["decision"] == "kept"


@pytest.mark.parametrize("how", HOW)
def test_fault_232_a_second_attempt_reads_all_rows_with_a_checkpoint_of_its_own(lake: Path, how: str) -> None:
    die_and_run_again(lake, query(lake, how, "{checkpoint:o}"))
    assert rows(lake) == 6


def test_fault_232_a_checkpoint_that_is_set_for_the_session_is_the_attempts_as_well(lake: Path) -> None:
    die_and_run_again(lake, query(lake, "append", "", conf={SETTING: "{checkpoint:o}"}))
    assert rows(lake) == 6


@pytest.mark.control
def test_fault_232_control_with_a_fixed_checkpoint_five_rows_are_missing(lake: Path) -> None:
    die_and_run_again(lake, query(lake, "append", f"{lake}/ck", idempotent=True))
    assert rows(lake) == 1


def test_fault_232_what_sparks_file_sink_says_of_another_attempts_checkpoint_is_told_with_its_cure(lake: Path) -> None:
    compacts_at_once = {"spark.sql.streaming.fileSink.log.compactInterval": "2"}
    task = query(lake, "file sink", f"{lake}/ck", idempotent=True, conf=compacts_at_once)
    with pytest.raises(RegionFailed):
        run_try(task)
    (lake / "lake" / "b.csv").write_text("6\n")
    with pytest.raises(AirflowFailException, match=r"Give the query \{checkpoint:o\} as its checkpoint, a folder of"):
        run_try(task)


def test_a_fixed_checkpoint_of_a_fixed_output_writes_each_row_once(lake: Path) -> None:
    die_and_run_again(lake, query(lake, "file sink", f"{lake}/ck", out=f"{lake}/out"))
    assert rows(lake) == 6
