"""Running a job's functions in one process: for unit tests and notebooks, without Airflow, S3 or a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.context import RegionContext
from airflow_recovery.job.declaration import Job
from airflow_recovery.job.json_values import plain_json
from airflow_recovery.job.sources import FileSplit, FileSplits
from airflow_recovery.job.templates import render
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.topology.graph import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class LocalRun:
    """The run that templates see in a local run: its data interval begins and ends at the logical date."""

    logical_date: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_interval_start(self) -> str | None:
        """The logical date."""
        return self.logical_date

    @property
    def data_interval_end(self) -> str | None:
        """The logical date."""
        return self.logical_date


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
    job: Job,
    spark: SparkSession,
    *,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    splits: Mapping[str, Sequence[str] | DataFrame] | None = None,
    logical_date: datetime | str | None = None,
    conf: Mapping[str, Any] | None = None,
    results: Mapping[str, DataFrame] | None = None,
    only: str | None = None,
) -> LocalResults:
    """Call every vertex's function once, in topological order, and return their DataFrames.

    - ``params``: by vertex, values in place of declared ones (``{"cleaned": {"day": "2013-01-01"}}``).
    - ``splits``: by source, the paths to read in place of its pattern, or a DataFrame in place of the whole source.
    - ``logical_date``, ``conf``: of the run that templates see.
    - ``results``: by vertex, a DataFrame in place of calling it.
    - ``only``: run this vertex and what it needs, and nothing else.

    Nothing is written or registered, and result types make no difference. Raises `JobDefinitionError` for names that
    the job does not have and for a source without paths, and `UserCodeError` for a function that returns no DataFrame.
    """
    run = LocalRun(logical_date.isoformat() if isinstance(logical_date, datetime) else logical_date, dict(conf or {}))
    own_params, own_splits = params or {}, splits or {}
    done: dict[str, DataFrame] = dict(results or {})
    for name in (*own_params, *own_splits, *done, *([only] if only else ())):
        job.vertex_named(name)
    for name, given in own_splits.items():
        if job.vertices[name].splits is None:
            raise JobDefinitionError(
                f"{job.vertices[name].where}: splits= is given and it declares no files: use results= to replace it"
            )
        if isinstance(given, str):
            raise JobDefinitionError(f"{job.vertices[name].where}: expected splits= as a list of paths: [{given!r}]")
        if not isinstance(given, Sequence):
            done[name] = given
    substitutes = set(done)
    needed = _needed(job, only, substitutes)
    for logical in job.graph().in_topological_order:
        if logical.name in needed and logical.name not in done:
            vertex = job.vertices[logical.name]
            done[vertex.name] = vertex.call(
                spark=spark,
                inputs=done,
                params=_params(job, vertex, run, own_params.get(vertex.name, {})),
                splits=_splits(vertex, own_splits),
                context=RegionContext(
                    job=job.name,
                    vertex=vertex.name,
                    region=job.regions().region_of(vertex.name).name,
                    attempt=1,
                    logical_date=run.logical_date,
                    data_interval_start=run.data_interval_start,
                    data_interval_end=run.data_interval_end,
                ),
            )
    return LocalResults({each.name: done[each.name] for each in job.graph().in_topological_order if each.name in done})


def _needed(job: Job, only: str | None, substitutes: set[str]) -> set[str]:
    graph = job.graph()
    needed = {only} if only else {vertex.name for vertex in graph.vertices if vertex.is_sink}
    for vertex in reversed(graph.in_topological_order):
        if vertex.name in needed and vertex.name not in substitutes:
            needed.update(vertex.inputs)
    return needed


def _params(job: Job, vertex: Vertex, run: LocalRun, own: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in own.items():
        if name not in vertex.params:
            raise JobDefinitionError(
                f"{vertex.where}: no parameter {name!r}{did_you_mean(name, vertex.params)}; "
                f"there are {', '.join(vertex.params) or 'none'}"
            )
        plain_json(value, where=f"{vertex.where}, parameter {name!r}")
    # A template that is replaced is not rendered: a test need not invent a run for it.
    declared = {name: value for name, value in vertex.params.items() if name not in own}
    return {**render(declared, run, where=vertex.where), **own}


def _splits(vertex: Vertex, own: Mapping[str, Sequence[str] | DataFrame]) -> FileSplits | None:
    if vertex.splits is None:
        return None
    if vertex.name not in own:
        raise JobDefinitionError(
            f"{vertex.where}: a local run lists no files; expected paths for {vertex.splits.pattern!r}, found none: "
            f"say splits={{{vertex.name!r}: ['some/file.csv']}}"
        )
    given = own[vertex.name]
    assert isinstance(given, Sequence)
    paths = tuple(str(path) for path in given)
    return FileSplits(tuple(FileSplit(path, 0, "") for path in paths), paths)
