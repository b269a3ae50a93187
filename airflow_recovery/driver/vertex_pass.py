"""One call of a region's vertices over a given set of splits: the whole region at once, or one batch of its splits."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from airflow_recovery.driver.cleanup import scratch_location
from airflow_recovery.driver.delta_result import write_delta
from airflow_recovery.driver.iceberg_result import driver_tables, write_iceberg
from airflow_recovery.driver.paths import spark_glob
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.reader import read_manifests
from airflow_recovery.driver.region_spec import RegionSpec, VertexSpec
from airflow_recovery.driver.seen_reads import SeenReads
from airflow_recovery.driver.table_commit import TableCommit
from airflow_recovery.driver.writer import write_result
from airflow_recovery.errors import JobDefinitionError, ManifestInvalid
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.job.context import RegionContext
from airflow_recovery.job.coordinator import restored_coordinator
from airflow_recovery.locations import TableLocation
from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.result_type import RESULT_TYPES
from airflow_recovery.model.split import Split
from airflow_recovery.results.keeper import ResultPlace, keeper

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.job import Job, Vertex
    from airflow_recovery.store.object_store import ObjectStore


@dataclass(frozen=True)
class OpenRegion:
    """What every pass over the vertices of one attempt shares.

    ``ready`` and ``server`` as in `airflow_recovery.driver.region.run_region`. ``side_inputs`` are the frames over
    other regions' results, which are looked up once.
    """

    spark: SparkSession
    spec: RegionSpec
    job: Job
    store: ObjectStore
    log: logging.Logger
    ready: Callable[[], object] = lambda: None
    server: str | None = None
    coordinators: dict[str, Any] = field(default_factory=dict)
    side_inputs: dict[str, DataFrame] = field(default_factory=dict)

    @cached_property
    def seen(self) -> SeenReads:
        """What its vertices are seen to read so far."""
        return SeenReads(self.spec, self.log)

    def vertex(self, name: str) -> Vertex:
        """The declared vertex of that name. Raises `JobDefinitionError` where the code here is not the planned one."""
        try:
            return self.job.vertices[name]
        except KeyError:
            raise JobDefinitionError(
                f"job {self.spec.job}: expected the vertex {name!r} that the region task planned, found "
                f"{sorted(self.job.vertices)}: the driver must import the same code as the DAG processor"
            ) from None

    def splits_of(self, vertex: str) -> tuple[Split, ...]:
        """The splits of ``vertex`` in the attempt's trace: all that it may read."""
        return tuple(Split.of_external(external) for external in self.spec.trace.externals if external.vertex == vertex)

    def versions_of(self, vertex: Vertex) -> dict[str, str]:
        """The texts by which the attempt's trace knows inputs of ``vertex``, by name."""
        recorded = {external.vertex: external.etag for external in self.spec.trace.externals}
        keys = {name: vertex.version_key(name) for name in vertex.versions}
        return {name: recorded[key] for name, key in keys.items() if key in recorded}


class FrameGuard(Protocol):
    """Looks at the frames of a pass before they are computed."""

    def mark(self, frame: DataFrame) -> None:
        """``frame`` reads the splits of the pass: it is a source's, or was written in the pass."""
        ...

    def calling(self, where: str, inputs: Iterable[DataFrame], *, is_source: bool) -> AbstractContextManager[None]:
        """Looks on while a vertex is called: raises where it does what may not be done in a pass."""
        ...

    def check(self, frame: DataFrame, where: str, *, is_result: bool) -> None:
        """Raises where ``frame``, of the vertex that ``where`` names, may not be computed in a pass."""
        ...


class VertexPass:
    """Calls the vertices in the spec's order and writes the results.

    ``splits``: what the source of a batch is handed; a source that is not named there gets all of its splits.
    ``folder`` is that of the batch, below every place that is written to; empty for the whole region. With ``guard``
    every frame is looked at. ``is_quiet``: one of many passes, whose progress the caller logs.
    """

    def __init__(
        self,
        region: OpenRegion,
        *,
        progress: Progress,
        accumulators: Accumulators,
        splits: Mapping[str, Sequence[Split]] | None = None,
        folder: str = "",
        guard: FrameGuard | None = None,
        is_quiet: bool = False,
    ) -> None:
        self._region = region
        self._spark = region.spark
        self._spec = region.spec
        self._log = region.log
        self._progress = progress
        self._accumulators = accumulators
        self._given = splits or {}
        self._folder = f"/{folder}" if folder else ""
        self._guard = guard
        self._is_quiet = is_quiet
        self._level = logging.DEBUG if is_quiet else logging.INFO
        self._inputs: dict[str, list[PartitionManifest]] = {}
        for manifest in region.spec.inputs:
            self._inputs.setdefault(manifest.result, []).append(manifest)
        self._frames: dict[str, DataFrame] = dict(region.side_inputs)

    def run(self) -> tuple[PartitionManifest, ...]:
        """The manifests of the region's results, in the order of the vertices."""
        outputs = []
        for vertex in self._spec.vertices:
            self._progress.vertex = vertex.name
            frame = self._call(vertex)
            self._look_at(frame, vertex)
            if vertex.is_result:
                # Read back by readers in this region too: they see the rows that everybody else will see.
                written = self._kept(frame, vertex)
                outputs.append(written)
                self._read_back(vertex.name, written)
            elif vertex.is_scratch:
                location = scratch_location(self._spec, vertex.name) + self._folder
                self._read_back(vertex.name, self._write(frame, vertex.name, location))
            else:
                self._frames[vertex.name] = frame
        self._progress.vertex = None
        return tuple(outputs)

    def lazy_frames(self) -> Mapping[str, DataFrame]:
        """The frames that the vertices return, by name. Nothing is written: the caller runs those that it needs."""
        for planned in self._spec.vertices:
            self._progress.vertex = planned.name
            self._frames[planned.name] = self._call(planned)
        return self._frames

    def _look_at(self, frame: DataFrame, planned: VertexSpec) -> None:
        self._region.seen.look(frame, self._region.vertex(planned.name))
        if self._guard is None:
            return
        vertex = self._region.vertex(planned.name)
        if vertex.splits is not None:
            self._guard.mark(frame)
        self._guard.check(frame, vertex.where, is_result=planned.is_result)

    def _read_back(self, name: str, written: PartitionManifest) -> None:
        self._inputs[name] = [written]
        if self._guard is not None and any(
            name in (read.vertex for read in self._region.vertex(vertex.name).inputs) for vertex in self._spec.vertices
        ):
            self._guard.mark(self._frame(name))

    def _call(self, planned: VertexSpec) -> DataFrame:
        spec, run = self._spec, self._spec.run
        vertex = self._region.vertex(planned.name)
        inputs = {edge.vertex: self._frame(edge.vertex) for edge in vertex.inputs}
        self._region.ready()
        if vertex.coordinator is not None:
            self._region.coordinators[planned.name] = restored_coordinator(
                vertex.coordinator, planned.name, spec.coordinators
            )
        if vertex.allow_duplicates and spec.attempt > 1:
            self._log.warning(
                "Attempt %d of %s: what it writes elsewhere by itself, an earlier attempt may have written already "
                "(allow_duplicates).",
                spec.attempt,
                planned.name,
            )
        guard = self._guard
        is_source = vertex.splits is not None
        watch = guard.calling(vertex.where, inputs.values(), is_source=is_source) if guard else nullcontext()
        with watch:
            return vertex.call(
                spark=self._spark,
                inputs=inputs,
                params={**planned.params, **self._region.versions_of(vertex)},
                splits=self._splits(vertex),
                context=RegionContext(
                    job=self._region.job.name,
                    vertex=planned.name,
                    region=spec.region,
                    attempt=spec.attempt,
                    logical_date=run.logical_date,
                    data_interval_start=run.data_interval_start,
                    data_interval_end=run.data_interval_end,
                    subtask=spec.subtask,
                    accumulators=self._accumulators,
                    coordinator=self._region.coordinators.get(planned.name),
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
            self._log.log(
                self._level,
                "%s reads %s from %s%s: %d files, %d bytes, %s rows",
                self._progress.vertex,
                name,
                manifests[0].location,
                f" and {len(manifests) - 1} more" if len(manifests) > 1 else "",
                sum(len(manifest.objects) for manifest in manifests),
                sum(manifest.size for manifest in manifests),
                sum(manifest.rows for manifest in manifests if manifest.rows is not None) or "unknown",
            )
            frame = self._frames[name] = read_manifests(self._spark, manifests)
            if manifests[0] in self._spec.inputs:
                self._region.side_inputs[name] = frame
        return frame

    def _splits(self, vertex: Vertex) -> Any:
        if vertex.splits is None:
            return None
        splits = self._given.get(vertex.name)
        if splits is None:
            splits = self._region.splits_of(vertex.name)
        what = "external files" if all(split.is_file for split in splits) else "splits"
        size = sum(split.size for split in splits)
        self._log.log(self._level, "%s reads %d %s, %d bytes", vertex.name, len(splits), what, size)
        return vertex.splits.handed(splits, spark_glob)

    def _kept(self, frame: DataFrame, planned: VertexSpec) -> PartitionManifest:
        if planned.table is not None:
            return self._commit(frame, TableCommit.of(self._spec, planned))
        return self._keep(frame, planned, planned.kept_as) if planned.kept_as else self._write_result(frame, planned)

    def _commit(self, frame: DataFrame, commit: TableCommit) -> PartitionManifest:
        started = time.monotonic()
        self._log.info("%s commits to %s", commit.result, commit.table)
        with self._progress.watching(self._spark):
            if TableLocation.parse(commit.table).is_iceberg:
                made = write_iceberg(self._spark, frame, commit, self._log, driver_tables())
            else:
                made = write_delta(self._spark, frame, commit, self._log)
        version, spent = made.objects[0].path, time.monotonic() - started
        message = "%s is snapshot %s of %s: %s rows, in %.1f s"
        self._log.info(message, commit.result, version, commit.table, made.rows, spent)
        return made

    def _write_result(self, frame: DataFrame, planned: VertexSpec) -> PartitionManifest:
        location = f"{self._spec.location}/{planned.name}{self._folder}"
        return self._write(frame, planned.name, location, is_digested=planned.is_digested)

    def _keep(self, frame: DataFrame, planned: VertexSpec, type_name: str) -> PartitionManifest:
        spec, result_type = self._spec, RESULT_TYPES[type_name]
        place = ResultPlace(
            type=result_type,
            result=planned.name,
            identity=spec.identity,
            region=spec.region,
            attempt=spec.attempt,
            journal=spec.journal.uri,
            folder=f"{spec.location}/{planned.name}{self._folder}",
            server=self._region.server,
            where=self._region.vertex(planned.name).where,
            is_digested=planned.is_digested,
        )
        started = time.monotonic()
        with self._progress.watching(self._spark):
            kept = keeper(result_type.kept_by).write(self._spark, frame, place)
        spent = time.monotonic() - started
        self._log.info(
            "%s: %s rows are kept at %s (%s), in %.1f s", planned.name, kept.rows, kept.location, type_name, spent
        )
        return kept

    def _write(self, frame: DataFrame, name: str, location: str, *, is_digested: bool = False) -> PartitionManifest:
        started = time.monotonic()
        self._log.log(self._level, "%s writes to %s", name, location)
        with nullcontext() if self._is_quiet else self._progress.watching(self._spark):
            written = write_result(
                self._spark, frame, result=name, location=location, store=self._region.store, is_digested=is_digested
            )
        self._log.log(
            self._level,
            "%s wrote %d rows: %d files, %d bytes, in %.1f s",
            name,
            written.rows,
            len(written.objects),
            written.size,
            time.monotonic() - started,
        )
        return written
