"""Versions of Delta tables as results, made and read by a real Spark with Delta: of vertices, and of a drop-in."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.parquet
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from delta_spark import delta_conf
from job_tasks import GROUP, job_dag
from paths import CODE
from pyspark.sql import DataFrame, SparkSession
from tries import run_try, state_in

from airflow_recovery.driver import delta_result
from airflow_recovery.driver.delta_result import read_delta, write_delta
from airflow_recovery.driver.failure import describe, is_missing_input
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.errors import HoldsOther, JobDefinitionError, PartitionMissing, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP, RegionKey
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.results.tables import Tables, token_of
from airflow_recovery.testing.spark_cluster import ConnectServer, connect_server

pytestmark = [pytest.mark.spark, pytest.mark.drill]

LOG = logging.getLogger("test_delta_on_spark")
KEY = RegionKey("d", "r", "g", "make")


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with connect_server(master="local[1]", conf=delta_conf()) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: ConnectServer) -> Iterator[SparkSession]:
    found = SparkSession.builder.remote(server.url).create()
    yield found
    found.stop()


@pytest.fixture
def lake(recovery: Path, server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the job's input and of its tables; its tasks run on the server."""
    connection = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": server.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    folder = recovery / "lake"
    folder.mkdir()
    (folder / "a.csv").write_text("1\n\n41\n")
    return folder


class Tabled:
    """The tasks of `dagjobs.tabled`, on one lake."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self.folder = lake.parent
        self.tasks = {task.region: task for task in job_dag("dagjobs.tabled:tabled").tasks if hasattr(task, "region")}

    def ran(self, region: str) -> str:
        return str(run_try(self.tasks[region], params={"lake": str(self.lake)})["decision"])

    def manifest(self, region: str) -> PartitionManifest:
        current = state_in(self.folder, GROUP, region).of(region).current
        assert current is not None
        assert current.outcome is not None
        return current.outcome.outputs[0]

    @property
    def cleaned(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.lake / "cleaned"))

    def rows(self, name: str) -> list[Any]:
        return deltalake.DeltaTable(str(self.lake / name)).to_pyarrow_table().to_pylist()

    def report(self, spark: SparkSession) -> list[Any]:
        return [tuple(row) for row in spark.read.parquet(self.manifest("report").location).collect()]


def on_top(lake: Path, n: int) -> None:
    """Somebody else puts a row of theirs in place of all that the table has."""
    import pyarrow as pa

    deltalake.write_deltalake(str(lake / "cleaned"), pa.table({"n": pa.array([n], "i8")}), mode="overwrite")


# --- of vertices ------------------------------------------------------------------------------------------------------


def test_a_vertex_commits_once_and_its_readers_are_given_that_version(lake: Path, session: SparkSession) -> None:
    job = Tabled(lake)
    assert job.ran("cleaned") == "ran"
    made = job.manifest("cleaned")
    assert (made.location, made.managed, made.rows) == (f"delta+file:{lake}/cleaned", False, 2)
    [registered] = made.objects
    assert (registered.path, registered.etag) == ("0", str(job.cleaned.metadata().id))
    assert registered.size > 0

    on_top(lake, 7)
    assert [job.ran(region) for region in ("cleaned", "report", "total")] == ["kept", "ran", "ran"]
    assert job.report(session) == [(42,)]
    assert job.rows("total") == [{"rows": 2}]

    (lake / "b.csv").write_text("100\n")
    assert [job.ran(region) for region in ("cleaned", "report")] == ["ran", "ran"]
    assert job.manifest("cleaned").objects[0].path == "2"
    assert job.report(session) == [(142,)]


def test_other_columns_than_the_tables_are_refused_before_any_row_is_written(lake: Path, session: SparkSession) -> None:
    session.createDataFrame([("a",)], "carrier string").write.format("delta").save(str(lake / "cleaned"))
    job = Tabled(lake)
    with pytest.raises(AirflowFailException, match=r"DELTA_METADATA_MISMATCH|schema mismatch"):
        job.ran("cleaned")
    assert job.cleaned.version() == 0
    assert len(list((lake / "cleaned").glob("*.parquet"))) == 1


def vacuum(table: deltalake.DeltaTable) -> None:
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)


@pytest.mark.parametrize("how", ["vacuumed", "rolled back"])
def test_fault_170_171_a_version_that_is_lost_is_made_again_for_its_reader(
    lake: Path, session: SparkSession, how: str
) -> None:
    job = Tabled(lake)
    session.createDataFrame([(5,)], "n long").write.format("delta").save(str(lake / "cleaned"))
    job.ran("cleaned")
    table = f"delta.`{lake}/cleaned`"
    if how == "vacuumed":
        on_top(lake, 7)
        session.sql(f"VACUUM {table} RETAIN 0 HOURS").collect()
        said = r"version 1 of delta\+file:\S+ has expired"
    else:
        session.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0").collect()
        said = r"version 1 of delta\+file:\S+ was rolled back: version 2 restored an older one"
    with pytest.raises(AirflowFailException, match=said):
        job.ran("report")
    assert [job.ran(region) for region in ("cleaned", "report")] == ["ran", "ran"]
    assert job.report(session) == [(42,)]
    assert job.manifest("cleaned").objects[0].path == str(job.cleaned.version())


@pytest.mark.parametrize("how", ["vacuumed", "rolled back"])
def test_fault_170_171_control_nobody_asks_the_table(
    lake: Path, session: SparkSession, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    job = Tabled(lake)
    on_top(lake, 5)
    job.ran("cleaned")
    if how == "vacuumed":
        on_top(lake, 7)
        vacuum(job.cleaned)
    else:
        job.cleaned.restore(0)
    monkeypatch.setattr(Tables, "why_lost", lambda *_: None)
    if how == "vacuumed":
        with pytest.raises(RegionFailed, match="FILE_NOT_EXIST"):
            job.ran("report")
    else:
        job.ran("report")
        assert job.report(session) == [(42,)], "which is in the table no more"


class Losing:
    """Spark's writer, whose first reply is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from pyspark.sql.connect.readwriter import DataFrameWriter

        self.calls = 0
        save = DataFrameWriter.save

        def saved(writer: Any, *args: Any, **given: Any) -> None:
            save(writer, *args, **given)
            self.calls += 1
            if self.calls == 1:
                raise ConnectionError("the reply was lost")

        monkeypatch.setattr(DataFrameWriter, "save", saved)


def test_fault_172_a_vertex_finds_its_commit_whose_reply_was_lost(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Tabled(lake)
    losing = Losing(monkeypatch)
    assert job.ran("cleaned") == "ran"
    assert losing.calls == 1
    assert job.manifest("cleaned").objects[0].path == "0"
    assert job.cleaned.version() == 0


def test_fault_172_control_without_its_token_the_attempt_has_failed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Tabled(lake)
    Losing(monkeypatch)
    monkeypatch.setattr(delta_result, "MOST_COMMITS", 0)
    with pytest.raises(RegionFailed, match="the reply was lost"):
        job.ran("cleaned")
    assert job.cleaned.version() == 0


def written(
    spark: SparkSession, folder: Path, attempt: int, rows: int | DataFrame, writer: str = "w"
) -> PartitionManifest:
    token = token_of(KEY, attempt, writer)
    commit = TableCommit("made", f"delta+{folder}/t", f"{KEY.path}#made", attempt, token, None)
    return write_delta(spark, spark.range(rows) if isinstance(rows, int) else rows, commit, LOG)


def count(frame: DataFrame) -> int:
    return int(frame.count())


def test_fault_173_a_zombie_changes_nothing_in_the_table(session: SparkSession, tmp_path: Path) -> None:
    written(session, tmp_path, 1, 5)
    newer = written(session, tmp_path, 2, 2, "x")
    for attempt in (1, 2):
        with pytest.raises(HoldsOther, match="found that Delta has left it out"):
            written(session, tmp_path, attempt, 9, "zombie")
    assert deltalake.DeltaTable(str(tmp_path / "t")).version() == 1
    assert count(read_delta(session, newer)) == 2
    assert written(session, tmp_path, 3, 4).objects[0].path == "2"
    assert count(read_delta(session, newer)) == 2


def test_fault_173_control_without_its_number_a_zombie_replaces_what_is_newer(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.connect.readwriter import DataFrameWriter

    option = DataFrameWriter.option
    monkeypatch.setattr(
        DataFrameWriter,
        "option",
        lambda writer, key, value: writer if key.startswith("txn") else option(writer, key, value),
    )
    newer = written(session, tmp_path, 2, 2)
    written(session, tmp_path, 1, 9, "zombie")
    assert count(session.read.format("delta").load(f"{tmp_path}/t")) == 9
    assert count(read_delta(session, newer)) == 2, "readers are given the registered version all the same"


def test_a_table_keeps_its_partitions(session: SparkSession, tmp_path: Path) -> None:
    frame = session.sql("SELECT id, id % 2 AS half FROM range(4)")
    frame.limit(1).write.format("delta").partitionBy("half").save(f"{tmp_path}/t")
    written(session, tmp_path, 1, frame)
    table = deltalake.DeltaTable(str(tmp_path / "t"))
    assert table.metadata().partition_columns == ["half"]
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == [0, 1, 2, 3]


def test_a_table_that_was_made_anew_is_not_read_for_the_one_that_was(session: SparkSession, tmp_path: Path) -> None:
    made = written(session, tmp_path, 1, 5)
    (tmp_path / "t").rename(tmp_path / "away")
    with pytest.raises(PartitionMissing, match=r"version 0 of .* can't be read") as gone:
        read_delta(session, made)
    assert is_missing_input(describe(gone.value))
    session.range(9).write.format("delta").save(f"{tmp_path}/t")
    with pytest.raises(PartitionMissing, match="was dropped and made anew"):
        read_delta(session, made)


def test_a_session_that_ignores_missing_files_reads_no_table(session: SparkSession, tmp_path: Path) -> None:
    made = written(session, tmp_path, 1, 5)
    session.conf.set(delta_result.IGNORE_MISSING_FILES, "true")
    try:
        with pytest.raises(JobDefinitionError, match="would be left out, silently"):
            read_delta(session, made)
    finally:
        session.conf.unset(delta_result.IGNORE_MISSING_FILES)


# --- of an operator, by spark-submit ----------------------------------------------------------------------------------


def lose(manifest: PartitionManifest) -> None:
    """So that its task asks for its input."""
    shutil.rmtree(manifest.location.removeprefix("file://"))


def tasks(lake: Path) -> tuple[Any, Any]:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        clean = RecoverableSparkSubmitOperator(
            task_id="clean",
            application=str(CODE / "delta_application.py"),
            conf=delta_conf(),
            application_args=["write", str(lake / "a.csv"), "{output:cleaned}"],
            outputs={"cleaned": f"delta+{lake}/cleaned"},
        )
        report = RecoverableSparkSubmitOperator(
            task_id="report",
            application=str(CODE / "delta_application.py"),
            conf=delta_conf(),
            application_args=["read", "{input:rows}", "{version:rows}", "{output:report}"],
            inputs={"rows": clean.result("cleaned")},
            outputs=["report"],
        )
        return clean, report


def test_fault_170_171_an_applications_version_that_is_lost_is_made_again(
    recovery: Path, outside_connect: None
) -> None:
    lake = recovery / "lake"
    lake.mkdir()
    (lake / "a.csv").write_text("1\n\n41\n")
    on_top(lake, 5)
    clean, report = tasks(lake)

    def manifest(task: str) -> PartitionManifest:
        current = state_in(recovery, OPERATORS_GROUP, task).of(task).current
        assert current is not None
        assert current.outcome is not None
        return current.outcome.outputs[0]

    def reported() -> list[Any]:
        return pyarrow.parquet.read_table(manifest("report").location.removeprefix("file://")).to_pylist()

    run_try(clean)
    assert manifest("clean").objects[0].path == "1"
    on_top(lake, 7)
    run_try(report)
    assert reported() == [{"total": 42}]

    lose(manifest("report"))
    deltalake.DeltaTable(str(lake / "cleaned")).restore(0)
    with pytest.raises(AirflowFailException, match="was rolled back: version 3 restored an older one"):
        run_try(report)
    run_try(clean)
    assert manifest("clean").objects[0].path == "4"
    run_try(report)
    assert reported() == [{"total": 42}]

    lose(manifest("report"))
    on_top(lake, 9)
    vacuum(deltalake.DeltaTable(str(lake / "cleaned")))
    with pytest.raises(AirflowFailException, match=r"version 4 of delta\+file:\S+ has expired"):
        run_try(report)


def adding(lake: Path) -> Any:
    """An application that reads and writes one table. Its commit carries the token by Delta's setting."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            task_id="add",
            application=str(CODE / "delta_application.py"),
            conf=delta_conf(),
            application_args=["add", "{input:before}", "{version:before}", f"{lake}/died"],
            inputs={"before": f"delta+file://{lake}/cleaned"},
            outputs={"after": f"delta+{lake}/cleaned"},
        )


def test_fault_230_an_application_that_reads_and_writes_one_table_applies_itself_once(
    recovery: Path, outside_connect: None
) -> None:
    lake = recovery / "lake"
    lake.mkdir()
    on_top(lake, 100)
    with pytest.raises(RegionFailed):
        run_try(adding(lake))
    assert run_try(adding(lake))["decision"] == "ran"
    assert run_try(adding(lake))["decision"] == "kept"
    table = deltalake.DeltaTable(str(lake / "cleaned"))
    assert (table.version(), table.to_pyarrow_table().to_pylist()) == (2, [{"n": 110}])
