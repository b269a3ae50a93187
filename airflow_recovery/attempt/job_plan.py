"""From a declared job and a run's facts to the plan that the journal records."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_recovery.attempt.shared_code import shared_fingerprint
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.job import Job, Subtask
from airflow_recovery.job.batch_snapshot import takes_snapshots
from airflow_recovery.job.chains import initializers
from airflow_recovery.job.fingerprint import JobCode, initializer_fingerprint, vertex_components, vertex_fingerprint
from airflow_recovery.job.mode import planned_mode
from airflow_recovery.job.parallelism import FixedParallelism, LiteralKeys, TemplatedKeys, templated_keys
from airflow_recovery.job.persistent import is_persistent
from airflow_recovery.job.sources import FilePattern, SplitSource
from airflow_recovery.job.tables import check_apart, rendered_table
from airflow_recovery.job.templates import render, uses_subtask
from airflow_recovery.job.vertex import VertexKind
from airflow_recovery.model.codec import digest_of
from airflow_recovery.model.committing import CommitSpec
from airflow_recovery.model.components import Component, bundle_version, components_of, fingerprint_of
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.groups import (
    DistributionPattern,
    GroupEdge,
    GroupedRegions,
    MadeByName,
    RegionGroup,
    region_fingerprint,
)
from airflow_recovery.model.keys import TaskKey
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.region_plan import CoordinatorPlan, RegionPlan
from airflow_recovery.planning.regions import Region
from airflow_recovery.sinks.declaration import spec_of


@dataclass(frozen=True)
class ExecutionRegion:
    """A region as it runs: the whole of it, or one of its subtasks. What its vertices' templates came to."""

    name: str
    region: Region
    subtask: Subtask | None
    inputs: Sequence[str]
    """The names of the execution regions that it reads, each once."""
    params: Mapping[str, Mapping[str, Any]]
    sources: Mapping[str, SplitSource]
    """By name: what each declares with ``splits=``, rendered."""


@dataclass(frozen=True)
class JobPlan:
    """The plan of one run, and its regions by name, in topological order: each is rendered when it is asked for."""

    record: PlanRecord
    regions: Mapping[str, ExecutionRegion]
    components_of: Callable[[str], Sequence[Component]] = lambda region: ()
    """The components of a region's fingerprint, for users (`FingerprintRecord`)."""

    def task_keys(self, group_id: str) -> dict[str, str]:
        """The key in Airflow of each region's task (`TaskKey`). The subtasks of one batch have one task."""
        return {region.name: str(TaskKey.of_region(region, group_id)) for region in self.record.regions}

    def in_batches(self, size_of: Callable[[int], int]) -> JobPlan:
        """This plan with the batch of each subtask. ``size_of(n)``: how many of n subtasks one task instance runs."""
        groups = (
            group if group.keys is None else replace(group, batch_size=size_of(len(group)))
            for group in self.record.groups
        )
        return replace(self, record=replace(self.record, regions=GroupedRegions(groups)))


def plan_job(
    job: Job,
    ref: str,
    facts: RunFacts,
    keys: Mapping[str, Sequence[str]] | None = None,
    *,
    code_version: str = "",
    of_group: Sequence[Component] = (),
) -> JobPlan:
    """Render every vertex's parameters over the run, take the fingerprints, and lay out the regions and their subtasks.

    ``keys`` are the subtasks' keys that were decided at run time, by `initializers` name. ``code_version`` is in every
    fingerprint but those of shared results, which all DAGs find by their key. ``of_group``: components of the task
    group's arguments, which are in every fingerprint. Raises `JobDefinitionError` for a template that can't be
    rendered, `FingerprintError` for code that can't be read.
    """
    return _Planner(job, ref, facts, keys or {}, code_version, of_group).plan()


def rendered_keys(job: Job, initializer: str, facts: RunFacts) -> tuple[str, ...] | None:
    """Today's keys of a templated ``parallelism=``; `None` where they are files. Raises `JobDefinitionError`."""
    spec = initializers(job)[initializer]
    if not isinstance(spec, TemplatedKeys):
        return None
    where = f"job {job.name!r}, parallelism of {initializer.rpartition('.')[0]!r}"
    return templated_keys(render({"parallelism": spec.template}, facts, where=where)["parallelism"], where=where)


class _Planner:
    def __init__(
        self,
        job: Job,
        ref: str,
        facts: RunFacts,
        keys: Mapping[str, Sequence[str]],
        code_version: str,
        of_group: Sequence[Component],
    ) -> None:
        self._job, self._ref, self._facts = job, ref, facts
        self._code_version = bundle_version(code_version)
        self._of_group = tuple(of_group)
        self._initializers = initializers(job)
        self._keys = {spec: tuple(keys[name]) for name, spec in self._initializers.items() if name in keys}
        self._vertices, self._graph = job.vertices, job.regions()
        code = JobCode(job)
        self._pieces = {name: code.of(name) for name in self._vertices}
        self._code = {name: digest_of(pieces) for name, pieces in self._pieces.items()}
        self._parallelism = {region.name: job.parallelism_of(region.vertices[0]) for region in self._graph.regions}
        self._read = {edge.result for region in self._graph.regions for edge in region.inputs}
        shared = (region for region in self._graph.regions if is_persistent(region, self._vertices))
        self._shared = frozenset(vertex for region in shared for vertex in region.vertices)
        self._alike: dict[str, tuple[dict[str, Any], str]] = {}

    def plan(self) -> JobPlan:
        groups = {name: RegionGroup(self._initializer(name), ()) for name in self._initializers}
        regions: dict[str, tuple[Region, Subtask | None]] = {}
        for region in self._graph.regions:
            keys = self._keys_of(region.name)
            if keys == ():
                continue  # decided in the run, and not yet
            group = groups[region.name] = self._group(region, keys, groups)
            for name, subtask in zip(group.names, _subtasks(keys), strict=True):
                regions[name] = region, subtask
            self._sources(region, keys[0] if keys else None)  # raises where a template can't be rendered
        check_apart(table for group in groups.values() for table in group.template.fixed)
        made = GroupedRegions(groups.values())
        record = PlanRecord(self._ref, made, self._job.retention, self._job.failover_strategy)
        return JobPlan(
            record,
            MadeByName(regions, lambda name: self._execution(name, *regions[name], made.by_name[name].inputs)),
            lambda name: self._components(regions[name][0]) if name in regions else (),
        )

    def _components(self, region: Region) -> tuple[Component, ...]:
        """The same for all subtasks: parameters that name the subtask are shown as they are declared."""
        found: list[Component] = []
        for vertex in region.vertices:
            declared = self._vertices[vertex]
            params = declared.params if uses_subtask(declared.params) else self._vertex(vertex, None)[0]
            components = vertex_components(self._job, vertex, params, code=self._pieces[vertex])
            of_several = f"{vertex}: " if len(region.vertices) > 1 else ""
            found += [replace(component, name=f"{of_several}{component.name}") for component in components]
        return (*found, *self._further(region.vertices[0]))

    def _further(self, vertex: str) -> tuple[Component, ...]:
        """What counts besides the vertex itself."""
        return self._of_group if vertex in self._shared else (*self._of_group, *self._code_version)

    def _keys_of(self, region: str) -> tuple[str, ...] | None:
        """The keys of a region's subtasks; `None` for a region without any."""
        parallelism = self._parallelism[region]
        if parallelism is None:
            return None
        if isinstance(parallelism, (FixedParallelism, LiteralKeys)):
            return parallelism.keys
        return self._keys.get(parallelism, ())

    def _execution(self, name: str, region: Region, subtask: Subtask | None, inputs: Sequence[str]) -> ExecutionRegion:
        key = subtask.key if subtask is not None else None
        params = {vertex: self._vertex(vertex, key)[0] for vertex in region.vertices}
        return ExecutionRegion(name, region, subtask, inputs, params, self._sources(region, key))

    def _sources(self, region: Region, key: str | None) -> dict[str, SplitSource]:
        rendered = {vertex: self._job.render_splits(vertex, self._facts, key) for vertex in region.vertices}
        return {vertex: splits for vertex, splits in rendered.items() if splits is not None}

    def _edge(self, producer: str, consumer: str) -> GroupEdge:
        """Pointwise between the same subtasks, else all of them."""
        parallelism = self._parallelism[producer]
        is_same = parallelism is not None and parallelism is self._parallelism[consumer]
        return GroupEdge(producer, DistributionPattern.POINTWISE if is_same else DistributionPattern.ALL_TO_ALL)

    def _vertex(self, vertex: str, key: str | None) -> tuple[dict[str, Any], str]:
        """The vertex's parameters and its fingerprint; computed once where all subtasks have the same."""
        own = key is not None and uses_subtask(self._vertices[vertex].params)
        if own or vertex not in self._alike:
            params = self._job.render_params(vertex, self._facts, key)
            fingerprint = vertex_fingerprint(self._job, vertex, params, code=self._code[vertex])
            if vertex in self._shared:
                fingerprint = shared_fingerprint(self._job, vertex, fingerprint)
            if further := self._further(vertex):
                fingerprint = fingerprint_of([*components_of([("fingerprint", fingerprint)]), *further])
            rendered = (params, fingerprint)
            if own:
                return rendered
            self._alike[vertex] = rendered
        return self._alike[vertex]

    def _group(self, region: Region, keys: tuple[str, ...] | None, before: Container[str]) -> RegionGroup:
        first = keys[0] if keys is not None else None
        fingerprints = {
            name: self._vertex(name, first)[1]
            for name in region.vertices
            if keys is None or not uses_subtask(self._vertices[name].params)
        }
        template = RegionPlan(
            name=region.name,
            vertices=region.vertices,
            results=region.results,
            inputs=(),
            final=region.is_final,
            fingerprint=region_fingerprint(fingerprints.items(), region.results) if keys is None else None,
            vertex_fingerprints=tuple(fingerprints.items()),
            reads=tuple(dict.fromkeys(read.result for read in region.inputs)),
            determinism=tuple(
                (name, mode)
                for name in region.results
                if (mode := self._vertices[name].determinism) is not Determinism.ALWAYS
            ),
            persistent=is_persistent(region, self._vertices),
            commit=self._commit(region),
            coordinators=tuple(
                CoordinatorPlan(name, takes_snapshots(declared))
                for name in region.vertices
                if (declared := self._vertices[name].coordinator) is not None
            ),
            fixed=tuple(
                (name, table)
                for name in region.results
                if (table := rendered_table(self._vertices[name], self._facts)) is not None
            ),
            finals=self._finals(region),
            mode=planned_mode(self._job.modes, region, self._graph, self._vertices),
        )
        return RegionGroup(
            template,
            tuple(self._edge(producer, region.name) for producer in region.upstream if producer in before),
            keys,
            own_fingerprints=tuple(
                (name, tuple(self._vertex(name, key)[1] for key in keys or ()))
                for name in region.vertices
                if name not in fingerprints
            ),
        )

    def _finals(self, region: Region) -> tuple[str, ...]:
        """The sinks of a region, where these are not what `Evaluation.final_results` takes for them by itself."""
        sinks = tuple(name for name in region.results if self._vertices[name].kind is VertexKind.SINK)
        unread = tuple(name for name in region.results if name not in self._read)
        return () if sinks == (unread or region.results) else sinks

    def _commit(self, region: Region) -> CommitSpec | None:
        vertices = [vertex for vertex in (self._vertices[name] for name in region.vertices) if vertex.sink is not None]
        return spec_of(vertices[0].sink, vertices[0].name) if vertices and vertices[0].sink is not None else None

    def _initializer(self, name: str) -> RegionPlan:
        spec = self._initializers[name]
        decides = rendered_keys(self._job, name, self._facts)
        if decides is None:
            assert not isinstance(spec, TemplatedKeys)
            splits = self._job.render_splits(spec.source, self._facts)
            assert isinstance(splits, FilePattern)
            decides = (splits.pattern,)
        fingerprint = initializer_fingerprint(spec, decides)
        return RegionPlan(name=name, vertices=(), results=(), inputs=(), final=False, fingerprint=fingerprint)


def _subtasks(keys: tuple[str, ...] | None) -> Sequence[Subtask | None]:
    return (None,) if keys is None else [Subtask(index, key, len(keys)) for index, key in enumerate(keys)]
