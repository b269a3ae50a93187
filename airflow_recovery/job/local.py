"""Running a job's functions in one process: for unit tests and notebooks, without Airflow, S3 or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from airflow_recovery.checks import check_arguments
from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.context import ONLY_SUBTASK, RegionContext, Subtask
from airflow_recovery.job.coordinator import restored_coordinator, snapshots_of
from airflow_recovery.job.declared_job import DeclaredJob
from airflow_recovery.job.handed_splits import FileSplits, Splits
from airflow_recovery.job.parallelism import (
    FixedParallelism,
    LiteralKeys,
    Parallelism,
    PerFile,
    TemplatedKeys,
    checked_keys,
    templated_keys,
)
from airflow_recovery.job.sources import EnumeratedSource, FilePattern, SplitSource
from airflow_recovery.job.templates import checked_moment, plain_json, render, uses_subtask
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.model.groups import subtask_region
from airflow_recovery.model.records import CoordinatorSnapshot
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import advance
from airflow_recovery.planning.graph import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    LocalSplits = Sequence[str | Split] | Mapping[str, Sequence[str | Split]] | DataFrame


@dataclass(frozen=True)
class LocalRun:
    """The run that templates see in a local run: its data interval begins and ends at the logical date."""

    logical_date: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_interval_start(self) -> str | None:
        """The logical date: a local run has no interval of its own."""
        return self.logical_date

    data_interval_end = data_interval_start


class LocalResults(Mapping[str, "DataFrame"]):
    """What each vertex returned, by vertex name in topological order; lazy, as Spark's DataFrames are."""

    def __init__(self, results: Mapping[str, DataFrame]) -> None:
        self._results = dict(results)

    def __getitem__(self, vertex: str) -> DataFrame:
        if vertex not in self._results:
            raise KeyError(
                f"{vertex!r} did not run{did_you_mean(vertex, self._results)}; {', '.join(self._results)} did"
            )
        return self._results[vertex]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


def run_local(
    job: DeclaredJob,
    spark: SparkSession,
    *,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    splits: Mapping[str, LocalSplits] | None = None,
    logical_date: datetime | str | None = None,
    conf: Mapping[str, Any] | None = None,
    results: Mapping[str, DataFrame | Mapping[str, DataFrame]] | None = None,
    only: str | None = None,
) -> LocalResults:
    """Call every vertex's function, once for each of its subtasks, in topological order; return their DataFrames.

    - ``params``: by vertex, values in place of declared ones (``{"cleaned": {"day": "2013-01-01"}}``).
    - ``splits``: by source, the paths to read in place of its pattern, or a DataFrame in place of the whole source. Of
      a parallel source, the paths of each subtask by key: ``{"raw": {"2013-01": ["jan.csv"]}}``; a list of paths is
      dealt out where the source declares a number of subtasks or `per_file` (the keys are then the files' names).
      A source of other splits (``key_ranges``, ``dates``, ``enumerated_by``) enumerates them itself; in place of that
      it takes a list of `Split`.
    - ``logical_date``, ``conf``: of the run that templates see.
    - ``results``: by vertex, a DataFrame in place of calling it; of a parallel vertex one for each key.
    - ``only``: run this vertex and what it needs, and nothing else.

    Nothing is written or registered, and result types make no difference. What is returned of a parallel vertex, and
    handed to readers that have not the same subtasks, is the union over its subtasks. Raises `JobDefinitionError` for
    names that the job does not have and for a source without paths, and `UserCodeError` for a function that returns no
    DataFrame.
    """
    where = f"job {job.name!r}, run_local()"
    check_arguments(run_local, locals(), where)
    if isinstance(logical_date, str):
        checked_moment(logical_date, where)
    run = LocalRun(logical_date.isoformat() if isinstance(logical_date, datetime) else logical_date, dict(conf or {}))
    local = _Local(job, spark, run, params or {}, splits or {}, dict(results or {}))
    for name in (*local.params, *local.splits, *local.results, *([only] if only else ())):
        job.vertex_named(name)
    for name, vertex_splits in local.splits.items():
        if job.vertices[name].splits is None:
            raise JobDefinitionError(
                f"{job.vertices[name].where}: splits= is given and it declares no files: use results= to replace it",
                code="local-run-splits-undeclared",
            )
        if isinstance(vertex_splits, str):
            raise JobDefinitionError(
                f"{job.vertices[name].where}: expected splits= as a list of paths: [{vertex_splits!r}]",
                code="local-run-splits-no-list",
            )
        if not isinstance(vertex_splits, (Sequence, Mapping)):
            local.results[name] = vertex_splits
    needed = _needed(job, only, set(local.results))
    order = [vertex.name for vertex in job.graph().in_topological_order]
    for name in order:
        if name in local.results:
            local.take(name)
        elif name in needed:
            local.call(name)
    return LocalResults({name: local.done[name] for name in order if name in local.done})


class _Local:
    """What is known of a local run while it goes through the vertices, producers first."""

    def __init__(
        self,
        job: DeclaredJob,
        spark: SparkSession,
        run: LocalRun,
        params: Mapping[str, Mapping[str, Any]],
        splits: Mapping[str, LocalSplits],
        results: dict[str, DataFrame | Mapping[str, DataFrame]],
    ) -> None:
        self._job, self._spark, self._run = job, spark, run
        self.params, self.splits, self.results = params, splits, results
        self.done: dict[str, DataFrame] = {}
        self._parts: dict[str, Mapping[str, DataFrame]] = {}
        self._keys: dict[Parallelism, tuple[str, ...]] = {}
        self._snapshots: list[CoordinatorSnapshot] = []

    def take(self, name: str) -> None:
        """Take the given DataFrames for the result of the vertex, in place of calling it."""
        frames = self.results[name]
        if isinstance(frames, Mapping):
            self._finish(name, dict(frames))
        else:
            self.done[name] = frames

    def call(self, name: str) -> None:
        """Call the vertex once for each of its subtasks."""
        parallelism = self._job.parallelism_of(name)
        if parallelism is None:
            self.done[name] = self._call(name, ONLY_SUBTASK, self.done)
            return
        keys = self._keys_of(name, parallelism)
        parts = {}
        for index, key in enumerate(keys):
            inputs = {
                edge.vertex: self._part(name, edge.vertex, key)
                if self._job.parallelism_of(edge.vertex) is parallelism
                else self.done[edge.vertex]
                for edge in self._job.vertices[name].inputs
            }
            parts[key] = self._call(name, Subtask(index, key, len(keys)), inputs)
        self._finish(name, parts)

    def _finish(self, name: str, parts: Mapping[str, DataFrame]) -> None:
        self._parts[name] = parts
        self.done[name] = reduce(lambda left, right: left.unionByName(right), parts.values())

    def _part(self, reader: str, name: str, key: str) -> DataFrame:
        parts = self._parts.get(name, {})
        if key not in parts:
            raise JobDefinitionError(
                f"{self._job.vertices[reader].where}: reads {name!r} subtask by subtask, and there is none of the key "
                f"{key!r}: give results={{{name!r}: {{{key!r}: ...}}}} with a DataFrame for every key",
                code="local-run-subtask-missing",
                input=name,
            )
        return parts[key]

    def _keys_of(self, name: str, parallelism: Parallelism) -> tuple[str, ...]:
        if isinstance(parallelism, (FixedParallelism, LiteralKeys)):
            return parallelism.keys
        if parallelism not in self._keys:
            where = self._job.vertices[name].where
            if isinstance(parallelism, TemplatedKeys):
                rendered = render({"parallelism": parallelism.template}, self._run, where=where)["parallelism"]
                self._keys[parallelism] = templated_keys(rendered, where=where)
            else:
                self._keys[parallelism] = checked_keys(self._files_of(parallelism.source), where=where)
        return self._keys[parallelism]

    def _files_of(self, source: str) -> list[str]:
        stand_in = self.results.get(source, self.splits.get(source))
        if isinstance(stand_in, Mapping):
            return list(stand_in)
        return [PurePath(str(path)).name for path in _paths(self._job.vertices[source], self.splits)]

    def _call(self, name: str, subtask: Subtask, inputs: Mapping[str, DataFrame]) -> DataFrame:
        vertex, run = self._job.vertices[name], self._run
        key = None if subtask is ONLY_SUBTASK else subtask.key
        region = subtask_region(self._job.regions().region_of(name).name, key)
        coordinator = None
        if vertex.coordinator is not None:
            coordinator = restored_coordinator(vertex.coordinator, name, self._snapshots)
        frame = vertex.call(
            spark=self._spark,
            inputs=inputs,
            params={**vertex.versions, **_params(vertex, run, self.params.get(name, {}), key)},
            splits=self._splits(vertex, subtask),
            context=RegionContext(
                job=self._job.name,
                vertex=name,
                region=region,
                attempt=1,
                logical_date=run.logical_date,
                data_interval_start=run.data_interval_start,
                data_interval_end=run.data_interval_end,
                subtask=subtask,
                coordinator=coordinator,
            ),
        )
        if coordinator is not None:
            left = snapshots_of({name: coordinator})
            self._snapshots += [CoordinatorSnapshot(vertex_name, region, body) for vertex_name, body in left]
        return frame

    def _splits(self, vertex: Vertex, subtask: Subtask) -> FileSplits | Splits | None:
        if vertex.splits is None:
            return None
        own = self._own(vertex, vertex.splits, subtask)
        if not own:
            raise JobDefinitionError(
                f"{vertex.where}: expected paths of the subtask {subtask.key!r}, found none: say "
                f"splits={{{vertex.name!r}: {{{subtask.key!r}: ['some/file.csv']}}}} with the paths of every key",
                code="local-run-subtask-without-paths",
                where=vertex.where,
                key=subtask.key,
            )
        return vertex.splits.handed(own, str)

    def _own(self, vertex: Vertex, declared: SplitSource, subtask: Subtask) -> Sequence[Split]:
        """The splits that one subtask of ``vertex`` reads."""
        parallelism, splits = self._job.parallelism_of(vertex.name), self.splits.get(vertex.name)
        if parallelism is not None and isinstance(splits, Mapping):
            return [_as_split(name) for name in splits.get(subtask.key, ())]
        is_dealt_out = True
        if splits is None and isinstance(declared, EnumeratedSource):
            listed = self._enumerated(vertex, declared, subtask)
            is_dealt_out = not uses_subtask(declared.declared)
        elif isinstance(parallelism, (LiteralKeys, TemplatedKeys)):
            return ()
        else:
            listed = [_as_split(path) for path in _paths(vertex, self.splits)]
        if isinstance(parallelism, PerFile):
            return [info for info in listed if PurePath(info.uri).name == subtask.key]
        if isinstance(parallelism, FixedParallelism) and is_dealt_out:
            return advance(None, listed, subtask.parallelism).assignment.of(subtask.index)
        return listed

    def _enumerated(self, vertex: Vertex, declared: EnumeratedSource, subtask: Subtask) -> Sequence[Split]:
        key = None if subtask is ONLY_SUBTASK else subtask.key
        rendered = render(declared.declared, self._run, where=vertex.where, subtask=key)
        return declared.rendered(rendered).enumerate(vertex.where)


def _needed(job: DeclaredJob, only: str | None, substitutes: set[str]) -> set[str]:
    graph = job.graph()
    needed = {only} if only else {vertex.name for vertex in graph.vertices if vertex.is_sink}
    for vertex in reversed(graph.in_topological_order):
        if vertex.name in needed and vertex.name not in substitutes:
            needed.update(vertex.inputs)
    return needed


def _params(vertex: Vertex, run: LocalRun, own: Mapping[str, Any], subtask: str | None) -> dict[str, Any]:
    for name, value in own.items():
        if name not in {*vertex.params, *vertex.versions}:
            raise JobDefinitionError(
                f"{vertex.where}: no parameter {name!r}{did_you_mean(name, vertex.params)}; "
                f"there are {', '.join(vertex.params) or 'none'}",
                code="parameter-unknown",
            )
        plain_json(value, where=f"{vertex.where}, parameter {name!r}")
    # A template that is replaced is not rendered: a test need not invent a run for it.
    declared = {name: value for name, value in vertex.params.items() if name not in own}
    return {**render(declared, run, where=vertex.where, subtask=subtask), **own}


def _as_split(split: str | Split) -> Split:
    return split if isinstance(split, Split) else Split.of_file(str(split), 0, "")


def _paths(vertex: Vertex, splits: Mapping[str, LocalSplits]) -> Sequence[str | Split]:
    paths = splits.get(vertex.name)
    if not isinstance(paths, Sequence):
        declared = vertex.splits.pattern if isinstance(vertex.splits, FilePattern) else ""
        raise JobDefinitionError(
            f"{vertex.where}: a local run lists no files; expected paths for {declared!r}, found none: say "
            f"splits={{{vertex.name!r}: ['some/file.csv']}}",
            code="local-run-without-paths",
        )
    return paths
