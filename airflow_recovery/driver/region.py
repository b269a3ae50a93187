"""One region, run on one session: the same code under spark-submit and over Spark Connect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.background import in_background
from airflow_recovery.driver.mode import DriverMode
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.region_spec import RegionSpec
from airflow_recovery.driver.spark_version import check_new_enough
from airflow_recovery.driver.stores import open_spec_store
from airflow_recovery.driver.vertex_pass import OpenRegion
from airflow_recovery.job.loading import load_job
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.masking import Mask
from airflow_recovery.journal.scrub import scrubbed
from airflow_recovery.model.inputs import Inputs
from airflow_recovery.model.mode import answers_of
from airflow_recovery.model.result_type import kept_by
from airflow_recovery.results.keeper import keeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_recovery.store.object_store import ObjectStore

COLUMNAR_UDF_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


def run_region(  # noqa: PLR0913 - what a driver has open already is handed in
    spark: SparkSession,
    spec: RegionSpec,
    *,
    log: logging.Logger,
    progress: Progress,
    results: ObjectStore | None = None,
    journal: Callable[[], ObjectStore] | None = None,
    ready: Callable[[], object] = lambda: None,
    server: str | None = None,
    mask: Mask = scrubbed,
) -> AttemptResult:
    """Run the vertices of ``spec`` in its order and return the manifests of their results.

    Pipelined vertices stay lazy. One that several vertices here read is written once to the attempt's scratch, as the
    spec says, so that all of them read the same rows. Does not touch the journal, unless the region's mode does.

    ``results`` and ``journal`` are the spec's stores, where they are open already. ``ready`` is called before each
    vertex: it waits for what the session still needs. ``server`` is the ``host:port`` of the Connect server, which can
    keep cached results; `None` under spark-submit, where nothing outlives the application. ``mask`` takes secrets out
    of the free text that the mode writes into the journal.

    Raises whatever a vertex or Spark raises (``progress.vertex`` then names the vertex), `ManifestInvalid` where what
    was written is not what was observed, `PartitionMissing` where a cached input is gone, `AttemptLost` where the
    attempt was fenced, and the errors of the store.
    """
    started = time.monotonic()
    application_id = in_background(lambda: spark.conf.get("spark.app.id", None), "application id")
    store = results or open_spec_store(spec.results)
    region = OpenRegion(spark, spec, load_job(spec.job), store, log, ready, server)

    def open_journal() -> Journal:
        truth = journal() if journal is not None else open_spec_store(spec.journal)
        return Journal(truth, spec.identity, writer=spec.trace.writer, mask=mask)

    try:
        _prepare(region)
        mode = answers_of(spec.mode.name, "driver", DriverMode)
        made = mode.run(region, progress, open_journal)
    except Exception as error:
        for kept in {kept_by(manifest.location) for manifest in spec.inputs} - {""}:
            theirs = [manifest for manifest in spec.inputs if kept_by(manifest.location) == kept]
            keeper(kept).after_failure(error, spark, theirs, log)
        raise
    spent = round(time.monotonic() - started, 3)
    return replace(
        made,
        spark_seconds=made.spark_seconds + spent,
        application_id=application_id(),
        undeclared=region.seen.found,
    )


def _prepare(region: OpenRegion) -> None:
    spec = region.spec
    names = ", ".join(vertex.name for vertex in spec.vertices)
    region.log.info("Region %s attempt %d of job %s runs: %s", spec.region, spec.attempt, spec.job, names)
    if spec.trace.inputs:
        region.log.info("Its inputs are of the attempts: %s", ", ".join(Inputs.of(spec.trace.inputs).texts()))
    check_new_enough(region.spark, spec.mode)
    avoid_udf_hang(region.spark)
    for vertex in spec.vertices:
        apply_spark_conf(region.spark, vertex.name, region.vertex(vertex.name).spark_conf, region.log)


def avoid_udf_hang(spark: SparkSession) -> None:
    """In Spark 4.2.0 a Python UDF directly on files waits for ever (SPARK-58241): hand it rows, as before.

    Every region begins by reading files. A vertex whose ``spark_conf`` names the setting has the last word.
    """
    if spark.version == "4.2.0":
        spark.conf.set(COLUMNAR_UDF_INPUT, "false")


def apply_spark_conf(spark: SparkSession, vertex: str, conf: Mapping[str, str], log: logging.Logger) -> None:
    """Set what a running session lets be set; log what it does not.

    Under spark-submit the submitting task has passed all of it already. A warm Connect server keeps its own values of
    static settings, such as an executor's memory.
    """
    for key, value in conf.items():
        if spark.conf.get(key, None) == value:
            continue
        if spark.conf.isModifiable(key):
            spark.conf.set(key, value)
        else:
            log.warning(
                "%s asks for %s=%s, which can't be changed in a running Spark application (it is %s): ignored",
                vertex,
                key,
                value,
                spark.conf.get(key, None),
            )
