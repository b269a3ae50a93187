"""Declaring a job in plain Python: ``flights = job("flights")``, then ``@flights.source``, ``.vertex``, ``.sink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.declared_job import DeclaredJob
from airflow_recovery.job.vertex import VertexKind
from airflow_recovery.job.vertex_options import (
    SinkOptions,
    SourceOptions,
    VertexOptions,
    check_option_names,
    declared_vertex,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack

    from airflow_recovery.job.local import LocalResults, LocalSplits

F = TypeVar("F", bound=Callable[..., Any])


class Job(DeclaredJob):
    """A job: vertices in the order of declaration. Begin one with ``job("flights")``; options as `DeclaredJob`.

    The decorators return the function unchanged, so that it can be called and tested directly. A function's parameters
    say what it receives: ``spark`` the session, ``context`` a `RegionContext`, ``splits`` the files of ``splits=``, a
    name in ``params=`` that parameter's value, and every other name the result of the vertex of that name.
    """

    @overload
    def source(self, function: F, /) -> F: ...
    @overload
    def source(self, /, **options: Unpack[SourceOptions]) -> Callable[[F], F]: ...
    def source(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a vertex that reads from outside the job: ``@flights.source(splits=files("s3://lake/*.csv"))``.

        With ``splits=`` the function has a parameter ``splits`` and reads exactly these; what a source reads without it
        is unknown to recovery, which then sees no change out there. Splits are ``files(...)``, ``key_ranges(...)``,
        ``dates(...)`` or ``enumerated_by(...)``. ``coordinator`` is a class of your own for what the subtasks share
        (``context.coordinator``); with `airflow_recovery.job.batch_snapshot.SupportsBatchSnapshot` it outlives its
        process, else all subtasks restart together. Options as in `vertex`, and:

        - ``commit="split"``: it is read batch by batch, each batch is committed, and an attempt that dies loses the
          open ones alone. To be declared on every vertex from the source to its blocking result as well.
        - ``batch_bytes``: what one batch holds at most (one split at least); ``loss_budget``: how many splits that
          can't be read the result may do without.
        - ``assignment``: how the splits come to the subtasks of a number. ``"static"``: each has an owner before
          anything runs. ``"dynamic"`` (with ``commit="split"``): a subtask pulls the next when it has read the last.
        """
        return self._decorator(VertexKind.SOURCE, function, options)

    @overload
    def vertex(self, function: F, /) -> F: ...
    @overload
    def vertex(self, /, **options: Unpack[VertexOptions]) -> Callable[[F], F]: ...
    def vertex(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a vertex that reads other vertices: ``@flights.vertex`` or ``@flights.vertex(result=BLOCKING)``.

        - ``name``: the vertex's name, else the function's.
        - ``inputs``: parameter to vertex, where their names differ: ``{"left": "cleaned"}``.
        - ``params``: JSON values handed in under their names; texts in them may be templates over the run alone.
        - ``spark_conf``: settings of the Spark application that the vertex's region needs. Those that may change rows
          belong to the fingerprint (docs/fingerprint.md).
        - ``result``: ``PIPELINED`` (fused with its readers), ``BLOCKING`` (written, registered, read again),
          ``BLOCKING_PERSISTENT`` (made once for all runs, DAGs and backfills with equal code, parameters and inputs),
          or, over Spark Connect, ``CACHED`` (kept by the server on its disks, for as long as it runs) and
          ``CACHED_MEMORY_ONLY`` (in its memory). What may be cached: `airflow_recovery.job.cached`. Or ``APPROXIMATE``:
          a channel to its one reader, which runs at the same time, on streaming DataFrames
          (`airflow_recovery.streaming`).
        - ``table``: the result is a snapshot of that table (``"delta+s3://lake/flights"``, perhaps a template), which
          each attempt overwrites as a whole; with it, ``result`` is ``BLOCKING``. See docs/tables.md.
        - ``streaming``: ``Streaming(...)``: how a streaming region runs.
        - ``deterministic``: what becomes of its consumers should it have to run again; default: the job's.
          ``"always"``: they run again. ``"verify"``: the result is written with a digest of its rows, and consumers
          keep theirs where it is equal. ``"assume"``: any finish of this vertex will do, and where several vertices of
          one region read it, each computes it anew. See `airflow_recovery.Determinism`.
        - ``version``: a text of your own; a change of it means that the vertex runs again.
        - ``ignore_changes_in``: names of modules and packages (``"shop.logs"``), or patterns of files
          (``"shop/*.md"``), whose changes never make the vertex run again. Its own function always counts.
        - ``parallelism``: how many subtasks it has, each a Spark application that is kept, cleared and run again by
          itself: a number; a list of keys (``["2013-01", "2013-02"]``); a template that gives keys with commas between
          them; ``per_file`` (a source with ``splits=``); or ``same_as("vertex")``. Between vertices with the same
          subtasks, subtask by subtask is read; else everything. ``{{ subtask }}`` in ``params=`` and in the pattern of
          ``splits=`` is the subtask's key, and ``context.subtask`` tells the function.
        - ``commit="split"``: each of its rows is made of one split of the region's source, and of inputs from other
          regions; so the source may be read batch by batch (`source`).
        """
        return self._decorator(VertexKind.VERTEX, function, options)

    @overload
    def sink(self, function: F, /) -> F: ...
    @overload
    def sink(self, /, **options: Unpack[SinkOptions]) -> Callable[[F], F]: ...
    def sink(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a final result: always wanted, written and registered. Options as in `vertex`; others may read it.

        - ``commit``: where the result is committed once it is prepared, such as ``PostgresTable(...)`` of
          `airflow_recovery.sinks`. Without it the registered files are the sink: the finish is the commit.

        The other two that are a sink's alone are about what the function writes elsewhere by itself, beside its result:

        - ``idempotent``: ``True``: doing that twice changes nothing; ``False``: it does, and the sink is refused unless
          duplicates are allowed. Not said: the function's own code is looked at, and ``False`` where it is seen to
          append (`airflow_recovery.job.appends` says what is seen, and what is not).
        - ``allow_duplicates``: it may happen twice; a warning in the task's log says when it may have.
        """
        return self._decorator(VertexKind.SINK, function, options)

    def co_locate(self, *vertices: str) -> None:
        """Put vertices into one region: subtask i of each runs in one Spark application, and they restart as one unit.

        What stands between two of them comes along. They need the same parallelism. Small vertices that nothing else
        joins save a start of Spark each; a failure of one is then a failure of all. Raises `JobDefinitionError` where
        one is in another group already; unknown names are found by `validate`.
        """
        if not all(isinstance(vertex, str) for vertex in vertices) or len(set(vertices)) < 2:
            raise JobDefinitionError(
                f"job {self.name!r}: expected co_locate() with the names of at least two vertices, found {vertices!r}: "
                "name them as texts",
                code="co-location-too-few",
            )
        for name in vertices:
            if name in self._co_located:
                raise JobDefinitionError(
                    f"job {self.name!r}, vertex {name!r}: expected at most one co-location, found a second one: name "
                    "all vertices of a unit in one co_locate()",
                    code="co-located-twice",
                )
        self._co_located.update(dict.fromkeys(vertices, vertices[0]))
        self._graph = self._regions = None

    def _decorator(self, kind: VertexKind, function: Callable[..., Any] | None, options: Mapping[str, Any]) -> Any:
        """``@flights.vertex`` hands in the function, ``@flights.vertex(...)`` none yet."""
        check_option_names(self.name, kind, options)
        if function is not None:
            return self._declare(function, kind, options)
        return lambda declared: self._declare(declared, kind, options)

    def _declare(self, function: F, kind: VertexKind, options: Mapping[str, Any]) -> F:
        vertex, signature = declared_vertex(self.name, function, kind, options, self.determinism)
        if vertex.name in self._declared:
            first = self._declared[vertex.name][0].function
            raise JobDefinitionError(
                f"{vertex.where}: expected unique vertex names, found this one a second time (first: "
                f"{first.__module__}.{first.__qualname__}): rename one of them, with name= if the functions must keep "
                "their names"
            )
        self._declared[vertex.name] = (vertex, signature)
        self._vertices = self._graph = self._regions = self._parallelism = self._modes = None
        return function

    def run_local(
        self,
        spark: SparkSession,
        *,
        params: Mapping[str, Mapping[str, Any]] | None = None,
        splits: Mapping[str, LocalSplits] | None = None,
        logical_date: datetime | str | None = None,
        conf: Mapping[str, Any] | None = None,
        results: Mapping[str, DataFrame | Mapping[str, DataFrame]] | None = None,
        only: str | None = None,
    ) -> LocalResults:
        """Run the job's functions here, without Airflow, S3 or cluster; see `airflow_recovery.job.local.run_local`."""
        from airflow_recovery.job.local import run_local

        return run_local(
            self, spark, params=params, splits=splits, logical_date=logical_date, conf=conf, results=results, only=only
        )


job = Job
"""Begins a job: ``flights = job("flights")``."""
