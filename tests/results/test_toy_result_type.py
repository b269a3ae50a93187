"""A result type of a user's own is one object in one file: here rows as JSON in a folder that no store knows.

raw (TOY) --> total, run by real tasks with a real Spark: kept, lost, made again, read again, deleted by gc.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from expected_errors import fails_with

from airflow_recovery import job
from airflow_recovery.errors import PartitionMissing
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.result_type import RESULT_TYPES, Consume, ResultType, register
from airflow_recovery.results.keeper import AskServer, ResultKeeper, ResultPlace, keeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "TOY_FOLDER"
"""The variable with the folder of the rows."""


class ToyKeeper(ResultKeeper):
    def write(self, spark: SparkSession, frame: DataFrame, place: ResultPlace) -> PartitionManifest:
        rows = [row.asDict() for row in frame.collect()]
        path = Path(os.environ[FOLDER], f"{uuid.uuid4().hex}.json")
        path.write_text(json.dumps({"folder": place.folder, "rows": rows}))
        return PartitionManifest(place.result, f"toy-rows://{path}", (), len(rows), frame.schema.json(), managed=False)

    def read(self, spark: SparkSession, manifest: PartitionManifest) -> DataFrame:
        from pyspark.sql.types import StructType

        path = Path(manifest.location.removeprefix("toy-rows://"))
        if not path.exists():
            raise PartitionMissing(f"{path} is gone")
        assert manifest.schema is not None
        return spark.createDataFrame(
            json.loads(path.read_text())["rows"], StructType.fromJson(json.loads(manifest.schema))
        )

    def why_lost(self, manifest: PartitionManifest, ask_server: AskServer) -> str | None:
        path = Path(manifest.location.removeprefix("toy-rows://"))
        return None if path.exists() else f"{path} is gone"

    def folders(self, below: str) -> Iterable[str]:
        folders = (str(json.loads(path.read_text())["folder"]) for path in self._files())
        return [folder for folder in folders if folder.startswith(below)]

    def delete(self, folder: str) -> None:
        for path in self._files():
            if json.loads(path.read_text())["folder"] == folder:
                path.unlink()

    @staticmethod
    def _files() -> list[Path]:
        return sorted(Path(os.environ[FOLDER]).glob("*.json")) if FOLDER in os.environ else []


KEEPER = ToyKeeper()
TOY = register(
    ResultType("TOY", Consume.AFTER_FINISH, is_runnable=True, kept_by="test_toy_result_type:KEEPER", scheme="toy-rows")
)

flights = job("flights")


@flights.source(result=TOY)
def raw(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("id", "id * 2 AS delay")


@flights.sink
def total(raw: DataFrame) -> DataFrame:
    return raw.groupBy().sum("delay").withColumnRenamed("sum(delay)", "delay")


# the tests


@pytest.fixture
def tries(recovery: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """One try of a region's task. Its application runs in the session's Spark."""
    from job_tasks import GROUP, job_dag
    from tries import run_try

    from airflow_recovery.driver.outcome import finish_attempt
    from airflow_recovery.driver.progress import Progress
    from airflow_recovery.driver.region import run_region
    from airflow_recovery.driver.region_spec import RegionSpec
    from airflow_recovery.task.region_program import RegionProgram

    log = logging.getLogger("toy")
    folder = recovery / "toy"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))

    def launch(spec: RegionSpec, folder: Path) -> None:
        finish_attempt(spec, run_region(spark, spec, log=log, progress=Progress(log, 1)), log)

    run = RegionProgram.run
    monkeypatch.setattr(RegionProgram, "run", lambda program, attempt, _: run(program, attempt, launch))
    tasks = {task.task_id: task for task in job_dag("test_toy_result_type:flights").tasks}
    return lambda region: run_try(tasks[f"{GROUP}.{region}"])


def rows(recovery: Path) -> list[Path]:
    return sorted((recovery / "toy").glob("*.json"))


def total_of(recovery: Path, spark: SparkSession) -> int:
    from job_tasks import GROUP
    from tries import state_in

    current = state_in(recovery, GROUP, "total").of("total").current
    assert current is not None
    assert current.outcome is not None
    (output,) = current.outcome.outputs
    return int(spark.read.parquet(*output.uris()).first()[0])


@pytest.mark.spark
def test_a_result_of_a_type_of_ones_own_is_kept_lost_made_again_and_deleted(
    tries: Callable[[str], dict[str, Any]],
    recovery: Path,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from job_tasks import GROUP
    from tries import journal_in

    from airflow_recovery.model.retention import Retention
    from airflow_recovery.results.sweep import Sweeper
    from airflow_recovery.results.swept_run import SweepOptions
    from airflow_recovery.store import open_store

    assert tries("raw")["attempt"] == 1
    kept = tries("raw")
    assert (kept["decision"], kept["attempt"]) == ("kept", 1)

    (written,) = rows(recovery)
    written.unlink()
    again = tries("raw")
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert f"{written} is gone" in caplog.text
    assert tries("total")["attempt"] == 1
    assert total_of(recovery, spark) == 12
    assert len(rows(recovery)) == 1

    journal = journal_in(recovery, GROUP)
    options = SweepOptions(Retention.as_consumed(), grace_s=0)
    results = open_store(f"file://{recovery}/results")
    report = Sweeper(journal.store, results, options).sweep()
    assert rows(recovery) == [], report


def test_two_types_of_one_name_are_refused() -> None:
    with fails_with("result-type-taken"):
        register(ResultType("TOY", Consume.MUST_RUN_TOGETHER))
    with fails_with("result-type-taken"):
        register(ResultType("TOY2", Consume.AFTER_FINISH, kept_by="elsewhere:KEEPER", scheme="toy-rows"))
    with fails_with("result-type-taken"):
        register(ResultType("TOY3", Consume.AFTER_FINISH, kept_by="test_toy_result_type:KEEPER", scheme="s3"))
    assert RESULT_TYPES["TOY"] is TOY


def test_a_keeper_that_is_none_is_refused() -> None:
    with fails_with("keeper-unfit"):
        keeper("test_toy_result_type:TOY")
