"""What spark-submit of a region is given, besides what the operator declares."""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from runtime_specs import IDENTITY, region_spec, troubled

from airflow_recovery.driver import StoreSpec
from airflow_recovery.driver.store_sdks import sdk_archives
from airflow_recovery.store import open_store
from airflow_recovery.task.region_submission import RegionSubmission


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restored afterwards: a submission changes it."""
    monkeypatch.setattr(os, "environ", os.environ.copy())


def launched(folder: Path, *, deploy_mode: str, journal: str) -> Any:
    """The copy of the operator that is submitted for an attempt whose journal is there."""
    operator = SparkSubmitOperator(task_id="r", conn_id="spark", deploy_mode=deploy_mode, files="given.txt")
    program: Any = SimpleNamespace(spark_conf={}, job=SimpleNamespace(packages=()))
    submission = RegionSubmission(program, operator, {}, IDENTITY, open_store(f"file://{folder}/data"))
    jobs: list[Any] = []
    submission.submit = lambda job, name: jobs.append(job)
    spec = replace(region_spec(folder, *troubled("none")), journal=StoreSpec(journal))
    submission._launch(copy.copy(operator), spec, folder)
    (job,) = jobs
    return job


@pytest.mark.slow
def test_a_driver_that_has_a_journal_on_s3_is_given_a_client_of_it(tmp_path: Path) -> None:
    job = launched(tmp_path, deploy_mode="client", journal="s3://lake/journal")
    spec, sdk = job.application_args
    assert (Path(spec).parent, sdk) == (tmp_path, str(sdk_archives("s3://b")[0]))
    assert job.files == "given.txt"
    assert sdk not in job.py_files.split(",")  # executors need none


def test_on_a_cluster_spec_and_client_are_sent_along(tmp_path: Path) -> None:
    job = launched(tmp_path, deploy_mode="cluster", journal="s3://lake/journal")
    assert job.files.split(",") == ["given.txt", *job.application_args]


def test_a_driver_whose_stores_are_folders_is_given_none(tmp_path: Path) -> None:
    job = launched(tmp_path, deploy_mode="cluster", journal=f"file://{tmp_path}/journal")
    assert [Path(path).suffix for path in job.application_args] == [".json"]
