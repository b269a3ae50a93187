"""An executor is killed in the middle of a shuffle, on a real standalone cluster. Spark repairs that; we do nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runtime_specs import outcome_of, region_spec, vertex
from test_driver import submit

from airflow_recovery.driver import RegionSpec, driver
from airflow_recovery.driver.exit_report import read_failure
from airflow_recovery.driver.failure_class import FailureClass, classify
from airflow_recovery.testing.spark_cluster import StandaloneCluster

pytestmark = pytest.mark.spark


def spec_of(folder: Path, *, always: bool) -> RegionSpec:
    params = {"flag": str(folder / "killed"), "always": always}
    spec = region_spec(folder, vertex("shuffled", params=params), vertex("counted", is_result=True), region="counted")
    return replace(spec, job="regionjobs.executors:executors")


@pytest.mark.drill
def test_fault_73_an_executor_lost_during_a_shuffle_is_sparks_own_stage_retry(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, always=False)
    code, said = submit(spec, tmp_path, cluster.master_url)
    assert code == driver.FINISHED, said
    assert (tmp_path / "killed").exists()
    outcome = outcome_of(spec)
    assert outcome is not None
    assert [(output.result, output.rows) for output in outcome.outputs] == [("counted", 20)]
    assert read_failure(spec) is None


@pytest.mark.drill
def test_fault_73_control_beyond_sparks_own_retries_the_region_fails_as_executor_lost(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, always=True)
    code, said = submit(spec, tmp_path, cluster.master_url)
    assert code == driver.FAILED, said
    failure = read_failure(spec)
    assert failure is not None
    assert classify(failure) is FailureClass.EXECUTOR_LOST, failure
