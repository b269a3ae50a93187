"""A source's coordinator in the driver: restored before its vertex is called, its snapshot in the finish."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_specs import outcome_of, region_spec, vertex

from airflow_recovery.driver import RegionSpec
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.reader import read_manifest
from airflow_recovery.driver.region import run_region
from airflow_recovery.job import run_local
from airflow_recovery.job.loading import load_job
from airflow_recovery.model.records import CoordinatorSnapshot, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOG = logging.getLogger("test_coordinator_in_driver")
JOB = "regionjobs.coordinated:coordinated"


def attempt(
    spark: SparkSession, folder: Path, region: str, snapshots: tuple[CoordinatorSnapshot, ...] = ()
) -> tuple[list[int], Outcome]:
    """The numbers in the result of one attempt that is run and finished as the driver does, and its outcome."""
    spec = replace(region_spec(folder, vertex("given", is_result=True), region=region), job=JOB, coordinators=snapshots)
    spec = RegionSpec.from_json(spec.to_json())
    result = run_region(spark, spec, log=LOG, progress=Progress(LOG, 1))
    finish_attempt(spec, result, LOG)
    outcome = outcome_of(spec)
    assert outcome is not None
    return sorted(each.number for each in read_manifest(spark, outcome.outputs[0]).collect()), outcome


def test_its_snapshot_rides_in_the_finish_and_the_next_attempt_is_restored_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, outcome = attempt(spark, tmp_path, "given[a]")
    assert (first, outcome.coordinators) == ([0, 1], (("given", base64.b64encode(b"[0, 1]").decode()),))
    ((name, body),) = outcome.coordinators
    second, _ = attempt(spark, tmp_path, "given[b]", (CoordinatorSnapshot(name, "given[a]", body),))
    assert second == [2, 3]


def test_in_a_local_run_each_is_restored_from_those_before(spark: SparkSession) -> None:
    made = run_local(load_job(JOB), spark)
    assert sorted(each.number for each in made["total"].collect()) == [*range(6)]
