"""A vertex that reads all subtasks of another one gets their rows as one DataFrame."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_specs import region_spec, vertex

from airflow_recovery.driver import vertex_pass
from airflow_recovery.driver.failure import describe, is_missing_input
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.reader import read_manifests
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import ManifestInvalid
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

LOG = logging.getLogger("test_subtask_inputs")


def subtask(spark: SparkSession, folder: Path, key: str, frame: DataFrame) -> PartitionManifest:
    location = f"file://{folder}/data/doubled~5B{key}~5D/00000001/doubled"
    return write_result(spark, frame, result="doubled", location=location, store=open_store(f"file://{folder}"))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


def test_the_rows_of_all_subtasks_an_empty_one_included(spark: SparkSession, tmp_path: Path) -> None:
    parts = [subtask(spark, tmp_path, str(at), spark.range(at * 10, at * 10 + 3)) for at in range(3)]
    parts.append(subtask(spark, tmp_path, "empty", spark.range(0)))
    assert ids(read_manifests(spark, parts)) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    none = [replace(part, objects=()) for part in parts]
    assert read_manifests(spark, none).count() == 0


def test_exactly_the_files_of_the_manifests(spark: SparkSession, tmp_path: Path) -> None:
    parts = [subtask(spark, tmp_path, str(at), spark.range(at * 10, at * 10 + 3)) for at in range(2)]
    folder = tmp_path / "data" / "doubled~5B1~5D" / "00000001" / "doubled"
    spark.range(99, 100).write.parquet(str(tmp_path / "stray"))
    for path in (tmp_path / "stray").glob("part-*"):
        path.rename(folder / path.name)
    assert ids(read_manifests(spark, parts)) == [0, 1, 2, 10, 11, 12]

    next((folder.parents[1].parent / "doubled~5B0~5D" / "00000001" / "doubled").glob("part-*")).unlink()
    with pytest.raises(Exception) as caught:  # noqa: PT011
        read_manifests(spark, parts).collect()
    assert is_missing_input(describe(caught.value))


def test_a_column_that_may_be_null_in_one_subtask_is_no_difference(spark: SparkSession, tmp_path: Path) -> None:
    sure = subtask(spark, tmp_path, "a", spark.range(1).selectExpr("id", "1 AS n"))
    unsure = subtask(spark, tmp_path, "b", spark.range(1).selectExpr("id", "CAST(NULL AS INT) AS n"))
    for parts in ([sure, unsure], [unsure, sure]):
        assert {each["n"] for each in read_manifests(spark, parts).collect()} == {1, None}


def test_other_columns_in_one_subtask_are_an_error_that_names_both(spark: SparkSession, tmp_path: Path) -> None:
    parts = [
        subtask(spark, tmp_path, "a", spark.range(1)),
        subtask(spark, tmp_path, "b", spark.range(1).selectExpr("CAST(id AS STRING) AS id")),
    ]
    with pytest.raises(ManifestInvalid, match=r"the same columns.*id:bigint.*doubled~5Ba.*id:string.*doubled~5Bb"):
        read_manifests(spark, parts)


def test_a_region_reads_them_as_one_input(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = tuple(subtask(spark, tmp_path, str(at), spark.range(at * 10, at * 10 + 3)) for at in range(2))
    spec = region_spec(tmp_path, vertex("noisy", is_result=True, params={"salt": 7}), inputs=parts, region="noisy")
    with caplog.at_level(logging.INFO, LOG.name):
        (found,) = run_region(spark, spec, log=LOG, progress=Progress(LOG, 1)).outputs
    assert found.rows == 6
    assert "and 1 more: " in caplog.text
    assert "6 rows" in caplog.text


def test_control_read_one_by_one_the_rows_of_one_subtask_are_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tuple(subtask(spark, tmp_path, str(at), spark.range(at * 10, at * 10 + 3)) for at in range(2))
    spec = region_spec(tmp_path, vertex("noisy", is_result=True, params={"salt": 7}), inputs=parts, region="noisy")
    monkeypatch.setattr(vertex_pass, "read_manifests", lambda spark, found: read_manifests(spark, found[:1]))
    (found,) = run_region(spark, spec, log=LOG, progress=Progress(LOG, 1)).outputs
    assert found.rows == 3
