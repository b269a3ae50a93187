"""What a driver sees its vertices read besides their inputs: tables and files that nobody has declared."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_specs import journal_of, outcome_of, region_spec, vertex, write_numbers

from airflow_recovery.driver import RegionSpec
from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.seen_reads import SeenReads
from airflow_recovery.model.records import ExternalObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOG = logging.getLogger("test_seen_reads")
COUNT = ExternalObject("stated.orders", "version:orders", 0, "41")


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The tables ``orders`` and ``returns`` of Spark's own catalog. Returns a folder of files beside them."""
    for name in ("orders", "returns"):
        spark.range(3).write.mode("overwrite").option("path", f"{tmp_path}/{name}").saveAsTable(name)
    write_numbers(tmp_path / "more")
    yield tmp_path / "more"
    for name in ("orders", "returns"):
        spark.sql(f"DROP TABLE {name}")


def spec_of(folder: Path, more: Path) -> RegionSpec:
    externals = (*write_numbers(folder / "in"), COUNT)
    vertices = (
        vertex("undeclared", params={"folder": str(more)}),
        vertex("stated"),
        vertex("raw"),
        vertex("joined", is_result=True),
    )
    return replace(region_spec(folder, *vertices, externals=externals), job="regionjobs.reads:reads")


def run(spark: SparkSession, spec: RegionSpec) -> AttemptResult:
    return run_region(spark, spec, log=LOG, progress=Progress(LOG, spec.attempt))


def test_fault_304_what_is_read_undeclared_is_in_the_log_and_in_the_outcome(
    spark: SparkSession, tables: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = spec_of(tmp_path, tables)
    with caplog.at_level("WARNING"):
        result = run(spark, spec)
    assert set(result.undeclared) == {
        "table spark_catalog.default.orders",
        "table spark_catalog.default.returns",
        f"files file:{tables}",
    }
    for text in result.undeclared:
        assert f"undeclared reads {text}, which is not declared" in caplog.text
    assert "raw reads" not in caplog.text
    finish_attempt(spec, result, LOG, store=journal_of(spec).store)
    outcome = outcome_of(spec)
    assert outcome is not None
    assert outcome.undeclared == result.undeclared


def test_fault_304_a_source_whose_input_is_known_by_a_text_has_declared_what_it_reads(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    stated = replace(
        region_spec(tmp_path, vertex("stated", is_result=True), externals=(COUNT,)), job="regionjobs.reads:reads"
    )
    result = run(spark, stated)
    assert result.undeclared == ()
    (manifest,) = result.outputs
    assert spark.read.parquet(*manifest.uris()).select("count").distinct().collect() == [("41",)]


@pytest.mark.control
def test_fault_304_control_without_the_look_nothing_is_named(
    spark: SparkSession, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SeenReads, "look", lambda *_: None)
    assert run(spark, spec_of(tmp_path, tables)).undeclared == ()
