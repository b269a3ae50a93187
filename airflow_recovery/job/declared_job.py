"""A job as it was declared: its vertices, and the graph, regions and subtasks that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from airflow_recovery.checks import check_arguments, fits, shown
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.cached import check_cached
from airflow_recovery.job.context import RunLike
from airflow_recovery.job.mode import DeclaringMode, check_strategy, modes_in
from airflow_recovery.job.parallelism import Parallelism, resolve
from airflow_recovery.job.persistent import check_persistent
from airflow_recovery.job.signature import Signature
from airflow_recovery.job.sources import SplitSource
from airflow_recovery.job.tables import check_tables
from airflow_recovery.job.templates import render
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.job.vertex_options import checked_determinism, checked_ignored, checked_version
from airflow_recovery.model.determinism import Determinism, DeterminismLike
from airflow_recovery.model.failover_strategy import (
    FailoverStrategy,
    FailoverStrategyLike,
    RecoveryModeLike,
    declared_strategy,
)
from airflow_recovery.model.job_recovery import declared_job_recovery
from airflow_recovery.model.retention import Retention, checked_retention
from airflow_recovery.planning.graph import JobGraph, JobVertex, did_you_mean
from airflow_recovery.planning.regions import Region, RegionGraph, region_graph
from airflow_recovery.sinks.declaration import check_one_sink


class DeclaredJob:
    """What can be read of a job. `airflow_recovery.job.Job` adds the decorators that declare it.

    ``version`` is part of every vertex's fingerprint. ``packages`` are top-level packages, beside the one that holds
    the vertex functions, whose code is followed by fingerprints and shipped to Spark. ``deterministic`` stands for
    every vertex that does not say it itself. ``retention`` says when intermediate results may be deleted
    (``"as-consumed"``); without it, the configuration does. ``failover_strategy`` is ``region`` (what must
    run again), ``full`` (everything) or ``individual``; ``recovery_mode="JOB_LEVEL"`` makes it ``full``.
    ``ignore_changes_in`` stands for every vertex, beside its own (`airflow_recovery.job.Job.vertex`).
    ``job_recovery`` has FLIP-383's options by their names, such as ``{"job-event.store.write-buffer.size": "4 mb"}``.
    """

    def __init__(  # noqa: PLR0913 - the options of a job
        self,
        name: str,
        *,
        version: str | None = None,
        packages: Sequence[str] = (),
        deterministic: DeterminismLike | None = Determinism.ALWAYS,
        retention: Retention | str | None = None,
        failover_strategy: FailoverStrategyLike | None = None,
        recovery_mode: RecoveryModeLike | None = None,
        job_recovery: Mapping[str, object] | None = None,
        ignore_changes_in: Sequence[str] = (),
    ) -> None:
        check_arguments(DeclaredJob.__init__, {"name": name}, "job")
        if not fits(packages, Sequence[str]) or not all(package.isidentifier() for package in packages):
            raise JobDefinitionError(
                f"job {name!r}: expected packages= as a list of top-level packages such as ['common'], "
                f"found {shown(packages)}: name them so, or leave it out",
                code="packages-unfit",
            )
        self.name = name
        self.version = checked_version(version, f"job {name!r}")
        self.packages = tuple(packages)
        self.ignore_changes_in = checked_ignored(ignore_changes_in, f"job {name!r}")
        self.retention = checked_retention(retention, f"job {name!r}")
        self.determinism = checked_determinism(deterministic, f"job {name!r}", Determinism.ALWAYS)
        self._strategy = declared_strategy(failover_strategy, recovery_mode, f"job {name!r}")
        self.job_recovery = declared_job_recovery(job_recovery, f"job {name!r}")
        self.module_ref: str | None = None
        """Where it was loaded from, ``package.module:name``; set by `load_job`."""
        self._declared: dict[str, tuple[Vertex, Signature]] = {}
        self._vertices: Mapping[str, Vertex] | None = None
        self._graph: JobGraph | None = None
        self._regions: RegionGraph | None = None
        self._parallelism: dict[str, Parallelism] | None = None
        self._modes: tuple[DeclaringMode, ...] | None = None
        self._co_located: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {', '.join(self._declared) or 'no vertices'}>"

    @property
    def vertices(self) -> Mapping[str, Vertex]:
        """The vertices by name, in the order of declaration. Complete, but not necessarily valid: see `validate`."""
        if self._vertices is None:
            self._vertices = MappingProxyType(
                {
                    name: self._without_defaulted(vertex, signature) if signature.defaulted else vertex
                    for name, (vertex, signature) in self._declared.items()
                }
            )
        return self._vertices

    def _without_defaulted(self, vertex: Vertex, signature: Signature) -> Vertex:
        """``vertex`` without the inputs that no vertex makes and that have a default value."""
        inputs = (
            edge for edge in vertex.inputs if edge.parameter not in signature.defaulted or edge.vertex in self._declared
        )
        return replace(vertex, inputs=tuple(inputs))

    def vertex_named(self, name: str) -> Vertex:
        """Return one vertex. Raises `JobDefinitionError` for an unknown name."""
        vertex = self.vertices.get(name)
        if vertex is None:
            raise JobDefinitionError(
                f"job {self.name!r}: no vertex {name!r}{did_you_mean(name, self.vertices)}; "
                f"there are {', '.join(self.vertices) or 'none'}",
                code="vertex-unknown",
                found=name,
            )
        return vertex

    def validate(self) -> None:
        """Raise `JobDefinitionError` unless the job is complete: it names the vertex and what to change.

        Found here: no vertices, an input that nobody makes, a vertex without inputs, a cycle, a result that nobody
        reads, and Spark settings in conflict inside one region. All else is found by the decorators.
        """
        self.regions()

    @property
    def failover_strategy(self) -> FailoverStrategy:
        """The declared strategy, else the usual one of the job's modes, else ``region``."""
        usual = [self._strategy, *(mode.usual_strategy for mode in self.modes), FailoverStrategy.REGION]
        return next(strategy for strategy in usual if strategy is not None)

    @property
    def modes(self) -> tuple[DeclaringMode, ...]:
        """The modes other than batch that anything in the job is declared for."""
        if self._modes is None:
            self._modes = modes_in(self.vertices.values())
        return self._modes

    def graph(self) -> JobGraph:
        """Return the logical graph. Raises as `validate`."""
        self.validate()
        assert self._graph is not None
        return self._graph

    def regions(self) -> RegionGraph:
        """Return the recovery regions, computed once. Raises as `validate`."""
        if self._regions is None:
            self._check_inputs()
            for name in self._co_located:
                self.vertex_named(name)
            self._graph = JobGraph(
                self.name,
                tuple(
                    JobVertex(
                        vertex.name,
                        tuple(dict.fromkeys(edge.vertex for edge in vertex.inputs)),
                        vertex.result,
                        is_sink=vertex.kind is VertexKind.SINK,
                        co_location=self._co_located.get(vertex.name),
                    )
                    for vertex in self.vertices.values()
                ),
            )
            regions = region_graph(self._graph)
            self._all_parallelism()
            for region in regions.regions:
                self._check_versions(region)
                if len(region.vertices) == 1:
                    continue  # it agrees with itself
                self._merged_conf(region.vertices)
                self._check_parallelism(region)
                check_one_sink(
                    [(vertex.where, vertex.sink) for vertex in (self.vertices[name] for name in region.vertices)]
                )
            check_persistent(regions, self.vertices)
            check_cached(regions, self.vertices)
            check_tables((vertex, self.parallelism_of(name)) for name, vertex in self.vertices.items())
            for mode in self.modes:
                mode.check_job(regions, self.vertices, self._graph)
            self.check_strategy(self.failover_strategy, regions)
            self._regions = regions
        return self._regions

    def check_strategy(self, strategy: FailoverStrategy, regions: RegionGraph | None = None) -> None:
        """Raise `JobDefinitionError` for a strategy that the job is not declared for.

        ``individual`` would leave readers on rows that nobody said may differ; the approximate ones are about channels.
        """
        check_strategy(strategy, self.vertices, self.name)
        if strategy is not FailoverStrategy.INDIVIDUAL:
            return
        for region in (regions or self.regions()).regions:
            for edge in region.inputs:
                if self.vertices[edge.result].determinism is not Determinism.ASSUME:
                    raise JobDefinitionError(
                        f"{self.vertices[edge.result].where}: expected deterministic='assume', since the failover "
                        f"strategy is 'individual' and region {region.name!r} reads this result, found "
                        f"{self.vertices[edge.result].determinism.value!r}: declare it, or use the strategy 'region'",
                        code="individual-not-assumed",
                        region=region.name,
                    )

    def region_spark_conf(self, region: str) -> dict[str, str]:
        """Return the Spark settings of a region: those of all its vertices, which do not contradict each other."""
        return self._merged_conf(self.regions().region(region).vertices)

    def parallelism_of(self, vertex: str) -> Parallelism | None:
        """Return how the vertex is split into subtasks; `None` where it is not. Raises `JobDefinitionError`.

        Vertices with the same subtasks have one and the same object: edges between them are pointwise.
        """
        return self._all_parallelism().get(self.vertex_named(vertex).name)

    def _all_parallelism(self) -> Mapping[str, Parallelism]:
        if self._parallelism is None:
            self._parallelism = resolve(
                {name: declared.parallelism for name, declared in self.vertices.items()},
                {name: declared.where for name, declared in self.vertices.items()},
            )
        return self._parallelism

    def region_parallelism(self, region: str) -> Parallelism | None:
        """Return how a region is split into subtasks: as each of its vertices is."""
        return self.parallelism_of(self.regions().region(region).vertices[0])

    def render_params(self, vertex: str, run: RunLike, subtask: str | None = None) -> dict[str, Any]:
        """Return the vertex's parameters for this run, and for the subtask of that key where it is parallel.

        Raises `JobDefinitionError` as `templates.render`.
        """
        declared = self.vertex_named(vertex)
        return render(declared.params, run, where=declared.where, subtask=subtask)

    def render_splits(self, vertex: str, run: RunLike, subtask: str | None = None) -> SplitSource | None:
        """Return what the vertex declares with ``splits=``, for this run and subtask; `None` where it declares none."""
        declared = self.vertex_named(vertex)
        if declared.splits is None:
            return None
        values = render(declared.splits.declared, run, where=declared.where, subtask=subtask)
        try:
            return declared.splits.rendered(values)
        except JobDefinitionError as error:
            raise JobDefinitionError(f"{declared.where}: {error}", code=error.code, **error.fields) from None

    def _check_inputs(self) -> None:
        for vertex in self.vertices.values():
            for read in vertex.inputs:
                if read.vertex not in self.vertices:
                    raise JobDefinitionError(
                        f"{vertex.where}: expected a vertex {read.vertex!r} for the parameter {read.parameter!r}, "
                        f"found none{did_you_mean(read.vertex, self.vertices)}: declare one, say which vertex it "
                        f"reads with inputs={{{read.parameter!r}: ...}}, or give it a value with "
                        f"params={{{read.parameter!r}: ...}}"
                    )
            if not vertex.inputs and vertex.kind is not VertexKind.SOURCE:
                raise JobDefinitionError(
                    f"{vertex.where}: expected at least one input, found none: name the vertices that it reads as "
                    "parameters, or declare it with @source if it reads from outside the job"
                )

    def _check_parallelism(self, region: Region) -> None:
        for name in region.vertices:
            parallelism = self.parallelism_of(name)
            if name in self._co_located and parallelism is not self.parallelism_of(region.vertices[0]):
                raise JobDefinitionError(
                    f"{self.vertices[name].where}: is co-located with {region.vertices[0]!r}, and has not the same "
                    'subtasks: give both the same parallelism=, for example with same_as("...")',
                    code="co-located-other-subtasks",
                )
            for edge in self.vertices[name].inputs:
                if edge.vertex in region.vertices and self.parallelism_of(edge.vertex) is not parallelism:
                    raise JobDefinitionError(
                        f"{self.vertices[name].where}: reads {edge.vertex!r}, which is PIPELINED: they share one "
                        f"Spark application, and have not the same subtasks. Declare {edge.vertex!r} with "
                        "result=BLOCKING, or give both the same parallelism=",
                        code="pipelined-other-subtasks",
                        where=self.vertices[name].where,
                        input=edge.vertex,
                    )

    def _check_versions(self, region: Region) -> None:
        vertices = [self.vertices[name] for name in region.vertices]
        known = next((vertex for vertex in vertices if vertex.versions), None)
        in_parts = next((vertex for vertex in vertices if vertex.modes), None)
        if known is not None and in_parts is not None:
            raise JobDefinitionError(
                f"{known.where}: expected Version() of a source whose region runs at once, found "
                f"{', '.join(in_parts.modes)} in {in_parts.name!r}: what was committed before the text changed would "
                "be kept. Declare what reads the source with result=BLOCKING",
                code="version-not-blocking",
            )

    def _merged_conf(self, vertices: Sequence[str]) -> dict[str, str]:
        merged: dict[str, str] = {}
        origin: dict[str, str] = {}
        for name in vertices:
            for key, value in self.vertices[name].spark_conf.items():
                if merged.setdefault(key, value) != value:
                    raise JobDefinitionError(
                        f"{self.vertices[name].where}: spark_conf sets {key}={value!r}, and vertex {origin[key]!r} of "
                        f"the same region sets {merged[key]!r}; they share one Spark application: give both the same "
                        f"value, or declare a vertex between them with result=BLOCKING"
                    )
                origin.setdefault(key, name)
        return merged
