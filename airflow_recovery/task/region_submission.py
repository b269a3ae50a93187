"""A declared job's region as one spark-submit of our driver program."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from airflow_recovery.attempt.application import ClaimedAttempt
from airflow_recovery.driver.code_archive import build_archive
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.store_sdks import sdk_archives
from airflow_recovery.driver.submit import APPLICATION, QUIET_CONF, store_conf, submit_environment
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import ExternalObject, Outcome
from airflow_recovery.store.schemes import packages_of
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.task.spark_submission import SparkSubmission

_PROVIDERS_DEFAULT_NAME = "arrow-spark"


class RegionSubmission(SparkSubmission):
    """Submits our driver with the region's spec, with everything that the operator was given passed through.

    The driver finishes its attempt by itself, so that nothing of `finish_previous` is left to do.
    """

    def __init__(self, program: RegionProgram, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._program = program

    def externals(self) -> tuple[ExternalObject, ...]:
        """The splits that the region's sources would read now."""
        return self._program.externals()

    def before_claim(self, state: RunState) -> None:
        """As `SparkSubmission.before_claim` and `RegionProgram.check_tables`."""
        super().before_claim(state)
        self._program.check_tables(state, driver_is_here=not self.is_on_cluster)

    def run(self, attempt: ClaimedAttempt) -> Outcome | None:
        """Run the region's program for ``attempt``; returns and raises as `RegionProgram.run`."""
        return self._program.run(attempt, partial(self._launch, self.new_job(attempt)))

    def _launch(self, job: Any, spec: RegionSpec, folder: Path) -> None:
        os.environ.update(submit_environment(os.environ, driver_is_here=not self.is_on_cluster))
        path = folder / f"{spec.tag}.json"
        path.write_text(spec.to_json(), encoding="utf-8")
        conf = dict(QUIET_CONF)
        # Spark itself never touches the journal, but sources may be where it is while results are on a disk.
        conf |= store_conf(spec.results, os.environ) or store_conf(spec.journal, os.environ)
        conf |= job.conf or {}
        conf |= self._program.spark_conf
        job.conf = conf
        job.application = APPLICATION
        given = [str(path), *map(str, sdk_archives(spec.journal.uri, spec.results.uri))]
        job.application_args = given
        packages = (*self._program.job.packages, *packages_of(spec.journal, spec.results))
        archive = str(build_archive(spec.job, packages))
        job.py_files = _joined(job.py_files, archive)
        self._used = (str(folder), archive, *given[1:])
        if self.is_on_cluster:
            job.files = _joined(job.files, ",".join(given))
        if job.name == _PROVIDERS_DEFAULT_NAME:
            job.name = f"{spec.identity.dag_id}.{spec.region}@{spec.attempt}"
        self.submit(job, spec.tag)


def _joined(given: str | None, ours: str) -> str:
    return ours if not given else f"{given},{ours}"
