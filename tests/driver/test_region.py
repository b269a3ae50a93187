"""A region on a local session: what its vertices read, write and say."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from runtime_specs import region_spec, troubled, vertex, write_numbers

from airflow_recovery.driver import RegionSpec, region, vertex_pass
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.exit_report import read_failure, reporting_failure
from airflow_recovery.driver.failure import describe, is_missing_input, is_user_error
from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import JobDefinitionError, ManifestInvalid, NotSetUp, RegionFailed
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.store import open_store
from airflow_recovery.task.region_program import region_failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.smoke]

LOG = logging.getLogger("test_region")


def run(spark: SparkSession, spec: RegionSpec, progress: Progress | None = None) -> AttemptResult:
    return run_region(spark, spec, log=LOG, progress=progress or Progress(LOG, spec.attempt))


def doubled(spark: SparkSession, folder: Path) -> PartitionManifest:
    """The result of region ``doubled``, attempt 1: 20 rows in 2 files."""
    location = f"file://{folder}/data/doubled/1/doubled"
    return write_result(
        spark, spark.range(0, 40, 2, 2), result="doubled", location=location, store=open_store(f"file://{folder}/data")
    )


def rows(spark: SparkSession, manifest: PartitionManifest) -> list[tuple[object, ...]]:
    return sorted(tuple(each) for each in read_manifest(spark, manifest).collect())


def diamond(folder: Path, given: PartitionManifest, *, is_scratch: bool) -> RegionSpec:
    """[doubled] -> noisy -> left, right"""
    noisy = vertex("noisy", is_scratch=is_scratch, params={"salt": 7})
    sinks = (vertex("left", is_result=True), vertex("right", is_result=True))
    return region_spec(folder, noisy, *sinks, inputs=(given,), region="noisy", attempt=3)


def failed(spark: SparkSession, spec: RegionSpec) -> RegionFailed:
    """What the task of a region that fails on this session ends with."""
    progress = Progress(LOG, spec.attempt)
    with pytest.raises(Exception) as caught, reporting_failure(spec, progress, LOG):  # noqa: PT011
        run(spark, spec, progress)
    return region_failed(spec, read_failure(spec), caught.value)


@pytest.mark.parametrize(
    ("what", "advice"), [("jar", "by jars= or packages="), ("module", "Install it"), ("other Python", "PYSPARK_PYTHON")]
)
def test_fault_124_what_spark_lacks_is_not_retried(spark: SparkSession, tmp_path: Path, what: str, advice: str) -> None:
    found = failed(spark, region_spec(tmp_path, *troubled(what)))
    assert isinstance(found, NotSetUp)
    assert advice in str(found)
    assert found.cause is not None
    assert dict(labelled(found.cause).labels) == {"class": "not set up", "recoverable": "no"}


@pytest.mark.slow
def test_fault_124_control_an_error_of_another_kind_is_retried(spark: SparkSession, tmp_path: Path) -> None:
    found = failed(spark, region_spec(tmp_path, *troubled("udf")))
    assert not isinstance(found, NotSetUp)
    assert found.cause is not None
    assert dict(labelled(found.cause).labels)["recoverable"] == "yes"


@pytest.mark.slow
def test_a_source_is_given_each_file_by_its_name_and_not_by_a_glob(spark: SparkSession, tmp_path: Path) -> None:
    externals = write_numbers(tmp_path / "in", "day1.csv", "day[1] {EU}*.csv")
    spec = region_spec(tmp_path, vertex("raw", is_result=True), externals=externals, region="raw")
    (manifest,) = run(spark, spec).outputs
    assert rows(spark, manifest) == [(number,) for number in range(20)]


@pytest.mark.slow
def test_two_readers_of_an_unstable_pipelined_vertex_see_the_same_rows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = diamond(tmp_path, doubled(spark, tmp_path), is_scratch=True)
    with caplog.at_level(logging.INFO, LOG.name):
        found = run(spark, spec)

    left, right = found.outputs
    assert (left.result, left.location) == ("left", f"{spec.location}/left")
    assert (left.rows, right.rows) == (20, 20)
    assert rows(spark, left) == rows(spark, right)
    assert {row[2] for row in rows(spark, left)} == {"2026-01-01/7"}
    assert (tmp_path / "data/noisy/3/_scratch/noisy").is_dir()
    assert found.application_id == spark.sparkContext.applicationId
    assert found.spark_seconds > 0

    said = "\n".join(caplog.messages)
    assert "Region noisy attempt 3 of job regionjobs.numbers:numbers runs: noisy, left, right" in said
    assert "Its inputs are of the attempts: doubled@1" in said
    assert f"noisy reads doubled from {spec.inputs[0].location}: 2 files, {spec.inputs[0].size} bytes, 20 rows" in said
    assert f"left wrote 20 rows: {len(left.objects)} files, {left.size} bytes" in said


@pytest.mark.slow
def test_without_scratch_two_readers_see_different_rows(spark: SparkSession, tmp_path: Path) -> None:
    left, right = run(spark, diamond(tmp_path, doubled(spark, tmp_path), is_scratch=False)).outputs
    assert rows(spark, left) != rows(spark, right)


def test_result_that_is_read_in_its_own_region_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    given = doubled(spark, tmp_path)
    noisy = vertex("noisy", is_result=True, params={"salt": 1})
    spec = region_spec(tmp_path, noisy, vertex("right", is_result=True), inputs=(given,))
    written, right = run(spark, spec).outputs
    assert rows(spark, written) == rows(spark, right)


@pytest.mark.slow
def test_fault_53_stray_file_of_the_input_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    given = doubled(spark, tmp_path)
    whole = tmp_path / "data/doubled/1/doubled" / given.objects[0].path
    stray = whole.with_name("part-00000-ffffffff-0000-1111-2222-0123456789ab-c000.snappy.parquet")
    stray.write_bytes(whole.read_bytes()[:100])
    left, _ = run(spark, diamond(tmp_path, given, is_scratch=True)).outputs
    assert left.rows == 20


def test_fault_46_lost_input_is_a_hint_with_the_vertex(spark: SparkSession, tmp_path: Path) -> None:
    given = doubled(spark, tmp_path)
    (tmp_path / "data/doubled/1/doubled" / given.objects[0].path).unlink()
    progress = Progress(LOG, 3)
    with pytest.raises(Exception, match="PATH_NOT_FOUND") as caught:
        run(spark, diamond(tmp_path, given, is_scratch=True), progress)
    failure = describe(caught.value, vertex=progress.vertex)
    assert failure.vertex == "noisy"
    assert is_missing_input(failure)
    assert not is_user_error(failure)


@pytest.mark.parametrize(
    ("what", "type_", "condition", "state", "is_user"),
    [
        ("type", "PySparkAttributeError", "ATTRIBUTE_NOT_SUPPORTED", "0A000", True),
        ("table", "AnalysisException", "TABLE_OR_VIEW_NOT_FOUND", "42P01", True),
        ("column", "AnalysisException", "UNRESOLVED_COLUMN.WITH_SUGGESTION", "42703", True),
        ("nothing", "UserCodeError", None, None, True),
        ("runtime", "RuntimeError", None, None, False),
        ("udf", "PythonException", "PYTHON_EXCEPTION", "38000", False),
    ],
)
def test_fault_78_failures_are_described(
    spark: SparkSession,
    tmp_path: Path,
    what: str,
    type_: str,
    condition: str | None,
    state: str | None,
    is_user: bool,
) -> None:
    progress = Progress(LOG, 1)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run(spark, region_spec(tmp_path, *troubled(what)), progress)
    failure = describe(caught.value, vertex=progress.vertex)
    assert (failure.type, failure.condition, failure.sql_state) == (type_, condition, state)
    assert is_user_error(failure) is is_user
    assert not is_missing_input(failure)
    assert failure.vertex == ("checked" if what == "udf" else "troubled")
    assert bool(failure.chain) is (what in ("table", "column", "udf"))
    assert "JVM stacktrace" not in failure.message
    if what == "udf":
        assert "ZeroDivisionError" in failure.message


def test_settings_are_applied_or_named(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from airflow_recovery.driver.region import apply_spark_conf

    conf = {"spark.sql.shuffle.partitions": "3", "spark.executor.memory": "3g", "spark.app.name": "kept"}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    conf["spark.app.name"] = str(spark.conf.get("spark.app.name"))
    try:
        with caplog.at_level(logging.INFO, LOG.name):
            apply_spark_conf(spark, "v", conf, LOG)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", str(before))
    (said,) = caplog.messages
    assert said.startswith("v asks for spark.executor.memory=3g, which can't be changed")


def test_spec_of_other_code_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match="expected the vertex 'renamed'"):
        run(spark, region_spec(tmp_path, vertex("renamed", is_result=True)))
    with pytest.raises(ManifestInvalid, match="a manifest of the input 'doubled'"):
        run(spark, region_spec(tmp_path, vertex("noisy", params={"salt": 1})))


@pytest.mark.slow
def test_attempt_never_writes_twice(spark: SparkSession, tmp_path: Path) -> None:
    spec = region_spec(tmp_path, *troubled("none"))
    run(spark, spec)
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        run(spark, spec)
    run(spark, replace(spec, trace=replace(spec.trace, attempt=2), location=spec.location[:-1] + "2"))


def udf_on_files(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, str]:
    """A region whose Python UDF stands directly on Parquet files: the setting it meets, and its plan. Nothing runs."""
    fresh = spark.newSession()  # no setting of another test
    plans = []

    def planned(session: SparkSession, frame: DataFrame, **names: Any) -> PartitionManifest:
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return PartitionManifest(names["result"], names["location"], (), 0)

    spec = region_spec(folder, vertex("noisy", is_result=True, params={"salt": 1}), inputs=(doubled(spark, folder),))
    monkeypatch.setattr(vertex_pass, "write_result", planned)
    run(fresh, spec)
    return fresh.conf.get(region.COLUMNAR_UDF_INPUT), plans[0]


def test_a_python_udf_on_files_is_handed_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, plan = udf_on_files(spark, tmp_path, monkeypatch)
    assert setting == "false"
    assert "ColumnarToRow" in plan


def test_control_without_the_switch_it_is_handed_columns_and_would_hang(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPARK-58241. Where a later Spark plans this otherwise, `avoid_udf_hang` can go."""
    monkeypatch.setattr(region, "avoid_udf_hang", lambda session: None)
    setting, plan = udf_on_files(spark, tmp_path, monkeypatch)
    assert setting == "true"
    assert "ColumnarToRow" not in plan
