"""The driver process of one region attempt under spark-submit, in every deploy mode."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_recovery.driver.exit_report import reporting_failure
from airflow_recovery.driver.failure import silence_query_loggers
from airflow_recovery.driver.outcome import finish_attempt, heartbeat, open_early
from airflow_recovery.driver.process import guard
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region import run_region
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.spark_version import check_one_version
from airflow_recovery.driver.store_sdks import provide_sdk
from airflow_recovery.driver.stores import lend_catalogs
from airflow_recovery.errors import AttemptLost
from airflow_recovery.store.schemes import know

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINISHED = 0
FAILED = 1
FENCED = 3


def drive(spec: RegionSpec) -> int:
    """Run one attempt to its outcome object; the exit code of the process.

    0 only if the outcome object exists; 1 for a failure, whatever raised it (a ``sys.exit(0)`` of a vertex too), which
    is left as a failure file and object; 3 where the attempt was fenced. Never fences its own attempt: the region task
    does, after it has classified the failure.
    """
    log = driver_log()
    silence_query_loggers()
    progress = Progress(log, spec.attempt)
    spark: SparkSession | None = None

    def stop() -> None:
        if spark is not None:
            spark.sparkContext.stop()

    def run() -> None:
        nonlocal spark
        journal = open_early(spec)
        with heartbeat(spec, journal, log, stop=stop) as signs, reporting_failure(spec, progress, log):
            from pyspark.sql import SparkSession

            builder = SparkSession.builder
            for key, value in spec.mode.spark_conf.items():
                builder = builder.config(key, value)
            spark = builder.getOrCreate()
            check_one_version(spark.version)
            signs.tell_application(spark.sparkContext.applicationId)
            progress.tell = signs.tell_progress
            log.info("Spark UI: %s", spark.sparkContext.uiWebUrl or "off")
            result = run_region(spark, spec, log=log, progress=progress, journal=journal)
            finish_attempt(spec, result, log, store=journal())

    try:
        return exit_code_of(run, spec, log)
    finally:
        _stop(spark, log)


def exit_code_of(run: Callable[[], None], spec: RegionSpec, log: logging.Logger) -> int:
    """Run ``spec``'s attempt; its process's exit code, as `drive` has it. Raises nothing."""
    try:
        run()
        return FINISHED
    except AttemptLost as error:
        log.error("Region %s attempt %d was fenced: %s", spec.region, spec.attempt, error)
        return FENCED
    except BaseException:
        traceback.print_exc()
        return FAILED


def main(arguments: list[str]) -> int:
    """The application of spark-submit: ``arguments`` are the paths of the spec file and of stores' clients.

    There is an archive for each library of `sdks_for`. Where a path is not on this machine (cluster modes), the file of
    the same name in the working folder is read: there ``--files`` puts it.
    """
    guard()
    spec_path, *sdk = map(_on_this_machine, arguments)
    spec = RegionSpec.from_json(spec_path.read_text(encoding="utf-8"))
    know(spec.journal, spec.results)
    for archive in sdk:
        provide_sdk(archive)
    lend_catalogs(spec.catalogs)
    return drive(spec)


def _on_this_machine(argument: str) -> Path:
    path = Path(argument)
    return path if path.is_file() else Path(path.name)


def driver_log() -> logging.Logger:
    """Lines for the task log: on standard output, which the submitting hook copies there."""
    log = logging.getLogger("airflow_recovery.driver")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    return log


def _stop(spark: SparkSession | None, log: logging.Logger) -> None:
    if spark is None:
        return
    try:
        spark.stop()
    except Exception as error:  # the outcome stands or falls without it
        log.warning("Spark did not stop in order: %s", error)
