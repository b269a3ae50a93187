"""One declared vertex, and how its function is called: by a unit test and by the Spark driver alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError, UserCodeError
from airflow_recovery.job.context import RegionContext
from airflow_recovery.job.handed_splits import FileSplits, Splits
from airflow_recovery.job.parallelism import Parallelism, SameAs
from airflow_recovery.job.sources import SplitSource
from airflow_recovery.model.determinism import Determinism
from airflow_recovery.model.result_type import ResultType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_recovery.sinks.declaration import CommittingSink

_DATA_FRAME_MEMBERS = ("write", "schema")


class VertexKind(str, Enum):
    """Which decorator declared a vertex: ``@job.source``, ``@job.vertex`` or ``@job.sink``."""

    SOURCE = "SOURCE"
    """Reads from outside the job; has no inputs."""

    VERTEX = "VERTEX"
    """Reads other vertices and is read by others."""

    SINK = "SINK"
    """A final result: always wanted, always registered."""


@dataclass(frozen=True)
class VertexInput:
    """The function's parameter ``parameter`` receives the result of vertex ``vertex``."""

    parameter: str
    vertex: str


@dataclass(frozen=True)
class Vertex:
    """One vertex of a job.

    ``params`` and ``splits`` are as declared: templates in them are not rendered yet. ``determinism``
    is the user's word on what it computes if it runs again, else the job's.
    """

    job: str
    name: str
    function: Callable[..., Any]
    kind: VertexKind
    inputs: tuple[VertexInput, ...]
    params: dict[str, Any]
    spark_conf: dict[str, str]
    result: ResultType
    determinism: Determinism
    version: str | None
    splits: SplitSource | None
    wants_spark: bool
    wants_context: bool
    wants_splits: bool
    parallelism: Parallelism | SameAs | None = None
    """As declared; `Job.parallelism_of` says whose subtasks `SameAs` means."""
    allow_duplicates: bool = False
    """Whether what a sink writes elsewhere by itself may be written once more by a later attempt."""
    coordinator: type[Any] | None = None
    """The class of what the subtasks of a source share."""

    sink: CommittingSink | None = None
    """Where a sink commits what an attempt has prepared; `None`: its finish is its commit."""

    table: str | None = None
    """The table whose snapshot the result is (docs/tables.md), as declared; `None`: it is files of its own."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """The inputs of a source that are known by a text, by name: the templates that `Version` was given."""
    ignore_changes_in: tuple[str, ...] = ()
    """Modules and files whose changes do not count, as declared on the vertex."""

    modes: Mapping[str, object] = field(default_factory=dict)
    """What it declares of modes other than batch, by the mode's name (`airflow_recovery.job.mode`)."""

    @property
    def where(self) -> str:
        """How messages begin: the job and the vertex."""
        return f"job {self.job!r}, vertex {self.name!r}"

    def version_key(self, name: str) -> str:
        """In place of a vertex's name, in a trace: the input ``name`` that is known by a text."""
        return f"{self.name}.{name}"

    @property
    def versions_told(self) -> tuple[str, ...]:
        """The ``versions`` that its function has a parameter for."""
        names = inspect.signature(self.function).parameters if self.versions else ()
        return tuple(name for name in self.versions if name in names)

    def call(
        self,
        *,
        spark: SparkSession,
        inputs: Mapping[str, DataFrame],
        params: Mapping[str, Any],
        splits: FileSplits | Splits | None,
        context: RegionContext,
    ) -> DataFrame:
        """Call the function and return its (lazy) DataFrame.

        ``inputs`` is keyed by vertex name and may hold more than this vertex reads; ``params`` are the rendered values
        of every declared parameter, and the texts by which inputs of a source are known. Raises `JobDefinitionError`
        where one of these is not handed in, `UserCodeError`
        where the function returns no DataFrame; what the function itself raises passes through.
        """
        arguments: dict[str, Any] = {}
        for read in self.inputs:
            if read.vertex not in inputs:
                raise JobDefinitionError(
                    f"{self.where}: expected a DataFrame for its input {read.vertex!r}, found none"
                )
            arguments[read.parameter] = inputs[read.vertex]
        for name in (*self.params, *self.versions_told):
            if name not in params:
                raise JobDefinitionError(f"{self.where}: expected a value for its parameter {name!r}, found none")
            arguments[name] = params[name]
        if self.wants_spark:
            arguments["spark"] = spark
        if self.wants_context:
            arguments["context"] = context
        if self.wants_splits:
            if splits is None:
                raise JobDefinitionError(f"{self.where}: expected its splits, found none")
            arguments["splits"] = splits
        result = self.function(**arguments)
        # Statically: reading `schema` of a Connect DataFrame would ask the server.
        if any(inspect.getattr_static(result, member, None) is None for member in _DATA_FRAME_MEMBERS):
            found = type(result)
            name = found.__name__ if found.__module__ == "builtins" else f"{found.__module__}.{found.__qualname__}"
            raise UserCodeError(
                f"{self.where}: expected the function to return a Spark DataFrame, found {name}"
                + (": is a `return` missing?" if result is None else ": return the DataFrame itself"),
                code="no-data-frame-returned",
                where=self.where,
                found=name,
            )
        return result  # type: ignore[no-any-return]
