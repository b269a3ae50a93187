"""One region, run on one session: the same code under spark-submit and over Spark Connect."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_recovery.errors import JobDefinitionError, ManifestInvalid
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.job.context import RegionContext
from airflow_recovery.job.loading import load_job
from airflow_recovery.job.sources import FileSplit, FileSplits
from airflow_recovery.runtime.beside import beside
from airflow_recovery.runtime.cached import cache_result, check_after
from airflow_recovery.runtime.paths import spark_path
from airflow_recovery.runtime.progress import Progress
from airflow_recovery.runtime.reader import read_manifests
from airflow_recovery.runtime.scratch import scratch_location
from airflow_recovery.runtime.spec import RegionSpec, VertexSpec
from airflow_recovery.runtime.stores import open_spec_store
from airflow_recovery.runtime.writer import write_result
from airflow_recovery.shuffle.cached import cached_view_name
from airflow_recovery.shuffle.manifest import PartitionManifest
from airflow_recovery.source.coordinator import OperatorCoordinator, restored_coordinator, snapshots_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.job import Job, Vertex
    from airflow_recovery.storage.object_store import ObjectStore

COLUMNAR_UDF_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"


@dataclass(frozen=True)
class RegionResult:
    """What one attempt wrote. ``spark_seconds`` is the time from the first vertex to the last listing."""

    outputs: tuple[PartitionManifest, ...]
    spark_seconds: float
    application_id: str | None
    accumulators: tuple[tuple[str, float], ...] = ()
    coordinators: tuple[tuple[str, str], ...] = ()


def run_region(
    spark: SparkSession,
    spec: RegionSpec,
    *,
    log: logging.Logger,
    progress: Progress,
    results: ObjectStore | None = None,
    ready: Callable[[], object] = lambda: None,
    server: str | None = None,
) -> RegionResult:
    """Run the vertices of ``spec`` in its order and return the manifests of their results.

    Pipelined vertices stay lazy. One that several vertices here read is written once to the attempt's scratch, as the
    spec says, so that all of them read the same rows. Does not touch the journal.

    ``results`` is the spec's store of results, where it is open already. ``ready`` is called before each vertex: it
    waits for what the session still needs. ``server`` is the ``host:port`` of the Connect server, which can keep
    cached results; `None` under spark-submit, where nothing outlives the application.

    Raises whatever a vertex or Spark raises (``progress.vertex`` then names the vertex), `ManifestInvalid` where what
    was written is not what was observed, `PartitionMissing` where a cached input is gone, and the errors of the store.
    """
    started = time.monotonic()
    application_id = beside(lambda: spark.conf.get("spark.app.id", None), "application id")
    store = results or open_spec_store(spec.results)
    run = _Run(spark, spec, load_job(spec.job), store, log, progress, ready, server)
    try:
        outputs = run.all_vertices()
    except Exception as error:
        check_after(error, spark, spec.inputs, log)
        raise
    return RegionResult(
        outputs=outputs,
        spark_seconds=round(time.monotonic() - started, 3),
        application_id=application_id(),
        accumulators=run.accumulators.totals(),
        coordinators=snapshots_of(run.coordinators),
    )


class _Run:
    """The frames of one region while it runs."""

    def __init__(
        self,
        spark: SparkSession,
        spec: RegionSpec,
        job: Job,
        store: ObjectStore,
        log: logging.Logger,
        progress: Progress,
        ready: Callable[[], object],
        server: str | None,
    ) -> None:
        self._spark = spark
        self._spec = spec
        self._job = job
        self._store = store
        self._log = log
        self._progress = progress
        self._ready = ready
        self._server = server
        self.accumulators = Accumulators()
        self.coordinators: dict[str, OperatorCoordinator] = {}
        self._inputs: dict[str, list[PartitionManifest]] = {}
        for each in spec.inputs:
            self._inputs.setdefault(each.result, []).append(each)
        self._frames: dict[str, DataFrame] = {}

    def all_vertices(self) -> tuple[PartitionManifest, ...]:
        spec = self._spec
        names = ", ".join(each.name for each in spec.vertices)
        self._log.info("Region %s attempt %d of job %s runs: %s", spec.region, spec.attempt, spec.job, names)
        if spec.trace.inputs:
            pins = ", ".join(f"{each.region}@{each.attempt}" for each in spec.trace.inputs)
            self._log.info("Its inputs are of the attempts: %s", pins)
        avoid_udf_hang(self._spark)
        for each in spec.vertices:
            apply_spark_conf(self._spark, each.name, self._vertex(each.name).spark_conf, self._log)
        outputs = []
        for each in spec.vertices:
            self._progress.vertex = each.name
            frame = self._call(each)
            if each.is_result:
                # Read back by readers in this region too: they see the rows that everybody else will see.
                written = self._cache(frame, each) if each.storage_level else self._write_result(frame, each)
                outputs.append(written)
                self._inputs[each.name] = [written]
            elif each.is_scratch:
                self._inputs[each.name] = [self._write(frame, each.name, scratch_location(spec, each.name))]
            else:
                self._frames[each.name] = frame
        self._progress.vertex = None
        return tuple(outputs)

    def _vertex(self, name: str) -> Vertex:
        try:
            return self._job.vertices[name]
        except KeyError:
            raise JobDefinitionError(
                f"job {self._spec.job}: expected the vertex {name!r} that the region task planned, found "
                f"{sorted(self._job.vertices)}: the driver must import the same code as the DAG processor"
            ) from None

    def _call(self, planned: VertexSpec) -> DataFrame:
        spec, run = self._spec, self._spec.run
        vertex = self._vertex(planned.name)
        inputs = {each.vertex: self._frame(each.vertex) for each in vertex.inputs}
        self._ready()
        if vertex.coordinator is not None:
            self.coordinators[planned.name] = restored_coordinator(vertex.coordinator, planned.name, spec.coordinators)
        if vertex.allow_duplicates and spec.attempt > 1:
            self._log.warning(
                "Attempt %d of %s: what it writes elsewhere by itself, an earlier attempt may have written already "
                "(allow_duplicates).",
                spec.attempt,
                planned.name,
            )
        return vertex.call(
            spark=self._spark,
            inputs=inputs,
            params=planned.params,
            splits=self._splits(planned.name),
            context=RegionContext(
                job=self._job.name,
                vertex=planned.name,
                region=spec.region,
                attempt=spec.attempt,
                logical_date=run.logical_date,
                data_interval_start=run.data_interval_start,
                data_interval_end=run.data_interval_end,
                subtask=spec.subtask,
                accumulators=self.accumulators,
                coordinator=self.coordinators.get(planned.name),
            ),
        )

    def _frame(self, name: str) -> DataFrame:
        frame = self._frames.get(name)
        if frame is None:
            manifests = self._inputs.get(name)
            if manifests is None:
                raise ManifestInvalid(
                    f"region {self._spec.region}: expected a manifest of the input {name!r}, found those of "
                    f"{sorted(self._inputs)}: the spec was made for other code; clear this task"
                )
            self._log.info(
                "%s reads %s from %s%s: %d files, %d bytes, %s rows",
                self._progress.vertex,
                name,
                manifests[0].location,
                f" and {len(manifests) - 1} more" if len(manifests) > 1 else "",
                sum(len(each.objects) for each in manifests),
                sum(each.size for each in manifests),
                sum(each.rows for each in manifests if each.rows is not None) or "unknown",
            )
            frame = self._frames[name] = read_manifests(self._spark, manifests)
        return frame

    def _splits(self, vertex: str) -> FileSplits | None:
        if self._vertex(vertex).splits is None:
            return None
        found = [each for each in self._spec.trace.externals if each.vertex == vertex]
        size = sum(each.size for each in found)
        self._log.info("%s reads %d external files, %d bytes", vertex, len(found), size)
        return FileSplits(
            tuple(FileSplit(each.uri, each.size, each.etag) for each in found),
            tuple(spark_path(each.uri) for each in found),
        )

    def _write_result(self, frame: DataFrame, planned: VertexSpec) -> PartitionManifest:
        location = f"{self._spec.location}/{planned.name}"
        return self._write(frame, planned.name, location, is_digested=planned.is_digested)

    def _cache(self, frame: DataFrame, planned: VertexSpec) -> PartitionManifest:
        spec, level = self._spec, planned.storage_level
        if self._server is None or level is None:
            raise JobDefinitionError(
                f"{self._vertex(planned.name).where}: expected a Spark Connect server that keeps it, found an "
                "application that ends with its region: declare it with result=BLOCKING"
            )
        started = time.monotonic()
        view = cached_view_name(spec.journal.uri, spec.identity, spec.region, spec.attempt, planned.name)
        self._log.info("%s is cached (%s) by %s as %s", planned.name, level, self._server, view)
        with self._progress.watching(self._spark):
            cached = cache_result(
                self._spark,
                frame,
                result=planned.name,
                level=level,
                server=self._server,
                view=view,
                is_digested=planned.is_digested,
            )
        self._log.info("%s: %d rows are cached, in %.1f s", planned.name, cached.rows, time.monotonic() - started)
        return cached

    def _write(self, frame: DataFrame, name: str, location: str, *, is_digested: bool = False) -> PartitionManifest:
        started = time.monotonic()
        self._log.info("%s writes to %s", name, location)
        with self._progress.watching(self._spark):
            written = write_result(
                self._spark, frame, result=name, location=location, store=self._store, is_digested=is_digested
            )
        self._log.info(
            "%s wrote %d rows: %d files, %d bytes, in %.1f s",
            name,
            written.rows,
            len(written.objects),
            written.size,
            time.monotonic() - started,
        )
        return written


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
