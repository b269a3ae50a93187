"""Fault 80, the other side: what a sink that may append by itself leaves behind after a retry, and who is told."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_specs import region_spec, vertex

from airflow_recovery.driver import RegionSpec
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import run_region

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOG = logging.getLogger("test_allowed_duplicates")


def attempt(folder: Path, number: int) -> RegionSpec:
    booked = vertex("booked", is_result=True, params={"path": f"{folder}/table"})
    spec = region_spec(folder, vertex("three"), booked, region="booked", attempt=number)
    return replace(spec, job="regionjobs.ledger:ledger")


def test_fault_80_control_a_sink_that_appends_writes_twice_and_its_log_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOG.name):
        with pytest.raises(RuntimeError, match="the worker is lost"):
            run_region(spark, attempt(tmp_path, 1), log=LOG, progress=Progress(LOG, 1))
        assert caplog.messages == []
        (result,) = run_region(spark, attempt(tmp_path, 2), log=LOG, progress=Progress(LOG, 2)).outputs

    # That is what is refused unless it is allowed; what the sink returned is there once all the same.
    assert spark.read.parquet(f"{tmp_path}/table").count() == 6
    assert result.rows == 3
    assert caplog.messages == [
        "Attempt 2 of booked: what it writes elsewhere by itself, an earlier attempt may have written already "
        "(allow_duplicates)."
    ]
