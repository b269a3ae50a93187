"""The tasks of one job: a DAG of nothing else, and drivers on this machine in place of its Spark applications."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.outcome import finish_attempt
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.operators import SparkJobTaskGroup
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.spark_submission import SparkSubmission

GROUP = "g"


def job_dag(job: str, **given: Any) -> DAG:
    """The DAG ``d`` with one job in the group ``g``."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)) as dag:
        SparkJobTaskGroup(group_id=GROUP, job=job, **given)
    return dag


class Drivers:
    """Each ends its attempt at once, with an empty result for each vertex that is one.

    ``meanwhile`` is called once, while the next driver runs; that driver dies of what it raises.
    """

    def __init__(self) -> None:
        self.specs: list[RegionSpec] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def run(self, spec: RegionSpec, folder: Path) -> None:
        self.specs.append(spec)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        names = [vertex.name for vertex in spec.vertices if vertex.is_result]
        schema = '{"type":"struct","fields":[]}'
        outputs = tuple(PartitionManifest(name, f"{spec.location}/{name}", (), 0, schema) for name in names)
        finish_attempt(spec, AttemptResult(outputs, 2.0, None), logging.getLogger("tests"))

    def stop(self) -> None: ...

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every region's program be run by these, however it would be launched."""
        run = RegionProgram.run
        monkeypatch.setattr(RegionProgram, "run", lambda program, attempt, launch: run(program, attempt, self.run))
        monkeypatch.setattr(SparkSubmission, "stop", lambda submission: self.stop())
