"""Split-wise commit (``commit="split"``): which regions may be read batch by batch, and how a source is read so.

Rows of A and B together must be the rows of A and the rows of B. That holds of vertices whose rows each come from one
split (select, filter, explode, a join with a pinned side input) and not of aggregates, windows, sorts or limits. So
every vertex from the source to the results says it, and here is checked that none is left out. What the plans really do
is looked at where they run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job.mode import DeclaringMode, ModeOption
from airflow_recovery.job.parallelism import FixedParallelism
from airflow_recovery.job.templates import uses_subtask
from airflow_recovery.job.vertex import Vertex, VertexKind
from airflow_recovery.splits.mode import SplitPlan

if TYPE_CHECKING:
    from airflow_recovery.planning.graph import JobGraph
    from airflow_recovery.planning.regions import Region, RegionGraph

SPLIT = "split"

DEFAULT_BATCH_BYTES = 256 * 1024 * 1024


class SplitAssignment(ModeOption, str, Enum):
    """How the splits of a parallel source come to its subtasks."""

    STATIC = "static"
    """Each split has an owner among the subtasks, before anything runs."""

    DYNAMIC = "dynamic"
    """A subtask pulls the next splits when it has read the ones before: for splits of unknown cost."""


@dataclass(frozen=True)
class SplitReading:
    """What a vertex with ``commit="split"`` declares: how the splits of its source are read.

    Of a vertex that is no source, the defaults.
    """

    assignment: SplitAssignment = SplitAssignment.STATIC
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """What one Spark job reads and commits at most; one split at least."""
    loss_budget: int = 0
    """How many splits that can't be read the result may do without."""


DEFAULT_READING = SplitReading()


class SplitDeclaration(DeclaringMode):
    """What is declared of vertices that commit split by split."""

    declared_by = "commit='split'"
    keeps_vanished_splits = True

    def declared(self, vertex: Vertex, options: Mapping[str, Any]) -> SplitReading | None:
        """How the splits are read; `None` without ``commit="split"``. Raises `JobDefinitionError`."""
        commit = options.get("commit")
        if vertex.kind is VertexKind.SINK and commit == SPLIT:
            raise JobDefinitionError(
                f"{vertex.where}: a sink ends as a whole, found commit='split': declare a vertex with result=BLOCKING "
                "and commit='split' before it"
            )
        if commit not in (None, SPLIT):
            raise JobDefinitionError(
                f"{vertex.where}: expected commit='split' or no commit=, found {commit!r}: a target to commit to is "
                "for a @sink"
            )
        reading = _checked_reading(options, vertex.where)
        if commit is None and reading != DEFAULT_READING:
            raise JobDefinitionError(
                f"{vertex.where}: assignment='dynamic', batch_bytes= and loss_budget= are of a source that is read "
                "batch by batch: declare commit='split' on it, and on every vertex from it to the blocking result"
            )
        if commit is None:
            return None
        if vertex.kind is VertexKind.SOURCE:
            _check_source(vertex, reading, options.get("parallelism"))
        return reading

    def fingerprint(self, vertex: Vertex) -> Mapping[str, object]:
        """``commit="split"``, and an assignment that is not the usual one.

        Who takes the declaration back, since the rows were not what they should be, has them made again as a whole.
        """
        is_dynamic = reading_of(vertex).assignment is SplitAssignment.DYNAMIC
        return {"split_wise": True, **({"assignment": SplitAssignment.DYNAMIC.value} if is_dynamic else {})}

    def check_job(self, graph: RegionGraph, vertices: Mapping[str, Vertex], job_graph: JobGraph) -> None:
        """Raise `JobDefinitionError` for a region that could not be put together from batches."""
        for region in graph.regions:
            declared = [name for name in region.vertices if is_split_wise(vertices[name])]
            if declared:
                _check_region(region, declared, vertices)

    def in_plan(self, region: Region, graph: RegionGraph, vertices: Mapping[str, Vertex]) -> SplitPlan | None:
        """The source whose splits are committed; `None` for a region that ends as a whole."""
        source = split_source(region, vertices)
        if source is None:
            return None
        is_dynamic = reading_of(vertices[source]).assignment is SplitAssignment.DYNAMIC
        return SplitPlan(split_source=source, pulls_splits=is_dynamic)

    def check_dag(
        self,
        graph: RegionGraph,
        vertices: Mapping[str, Vertex],
        job_graph: JobGraph,
        where: str,
        *,
        recovers: bool,
        max_active_tasks: int | None,
    ) -> None:
        """Raise `JobDefinitionError` for subtasks that pull their splits, where recovery is off."""
        for vertex in vertices.values():
            if not recovers and reading_of(vertex).assignment is SplitAssignment.DYNAMIC:
                raise JobDefinitionError(
                    f"{where}: recovery is off, and the subtasks of {vertex.name!r} pull their splits from a log in "
                    "the journal (assignment='dynamic'): each would read all of them. Leave recovery on, or declare "
                    "assignment='static'."
                )


MODE = SplitDeclaration()


def is_split_wise(vertex: Vertex) -> bool:
    """Declared ``commit="split"``: what it makes of some splits and of others is what it makes of all of them."""
    return SPLIT in vertex.modes


def reading_of(vertex: Vertex) -> SplitReading:
    """How a source's splits are handed out and committed."""
    declared = vertex.modes.get(SPLIT)
    return declared if isinstance(declared, SplitReading) else DEFAULT_READING


def _checked_reading(options: Mapping[str, Any], where: str) -> SplitReading:
    assignment = options.get("assignment", DEFAULT_READING.assignment)
    batch_bytes = options.get("batch_bytes", DEFAULT_READING.batch_bytes)
    loss_budget = options.get("loss_budget", DEFAULT_READING.loss_budget)
    try:
        assigned = SplitAssignment(assignment)
    except ValueError:
        raise JobDefinitionError(
            f"{where}: expected assignment= as 'static' or 'dynamic', found {assignment!r}"
        ) from None
    if isinstance(batch_bytes, bool) or not isinstance(batch_bytes, int) or batch_bytes < 1:
        raise JobDefinitionError(
            f"{where}: expected batch_bytes= as a number of bytes from 1, found {batch_bytes!r}: a batch is what one "
            "Spark job reads and commits"
        )
    if isinstance(loss_budget, bool) or not isinstance(loss_budget, int) or loss_budget < 0:
        raise JobDefinitionError(f"{where}: expected loss_budget= as a number of splits from 0, found {loss_budget!r}")
    return SplitReading(assigned, batch_bytes, loss_budget)


def _check_source(vertex: Vertex, reading: SplitReading, parallelism: object) -> None:
    """``parallelism`` is as it was given. Raises `JobDefinitionError`."""
    if vertex.splits is None:
        raise JobDefinitionError(
            f"{vertex.where}: commit='split' is for a source that declares its splits, found none: add "
            "splits=files('...'), or leave commit= out"
        )
    if vertex.coordinator is not None:
        raise JobDefinitionError(
            f"{vertex.where}: expected either commit='split' or coordinator=, found both: a coordinator is told of an "
            "attempt as a whole, and what is adopted of an earlier one it would not know"
        )
    has_own = uses_subtask(vertex.splits.declared)
    if reading.assignment is SplitAssignment.DYNAMIC and (
        has_own or not isinstance(vertex.parallelism, FixedParallelism)
    ):
        raise JobDefinitionError(
            f"{vertex.where}: expected assignment='dynamic' with a number of subtasks that pull from one listing, "
            f"found parallelism={parallelism!r}" + (" and splits of each subtask's own" if has_own else "")
        )


def split_source(region: Region, vertices: Mapping[str, Vertex]) -> str | None:
    """The source whose splits the region commits one by one; `None`: it ends as a whole."""
    sources = [name for name in region.vertices if is_split_wise(vertices[name]) and vertices[name].splits is not None]
    return sources[0] if sources else None


def _check_region(region: Region, declared: list[str], vertices: Mapping[str, Vertex]) -> None:
    sources = [name for name in declared if vertices[name].splits is not None]
    if not sources:
        raise JobDefinitionError(
            f"{vertices[declared[0]].where}: expected commit='split' together with a source of the same region that "
            f"has it, found none: its region is {', '.join(region.vertices)}. Declare commit='split' on the source "
            "with splits=, and leave result=BLOCKING out between the two; or take it away here"
        )
    if len(sources) > 1:
        raise JobDefinitionError(
            f"{vertices[sources[1]].where}: expected one source with commit='split' in a region, found {sources[0]!r} "
            "as well: a batch is of splits of one source. Put a vertex with result=BLOCKING and commit='split' after "
            "each of them"
        )
    below = _made_of(sources[0], region, vertices)
    for name in region.vertices:
        vertex = vertices[name]
        if name not in below:
            raise JobDefinitionError(
                f"{vertex.where}: is in the region of {sources[0]!r}, which is read batch by batch, and is not made of "
                "it: every batch would make it again, and not the same. Declare it with result=BLOCKING, so that "
                "all batches read one attempt of it"
            )
        if not is_split_wise(vertex):
            raise JobDefinitionError(
                f"{vertex.where}: expected commit='split' on every vertex from {sources[0]!r} to the blocking result, "
                f"found none: {_advice(vertex, sources[0])}"
            )
        if vertex.result.is_cached or vertex.result.persistent:
            raise JobDefinitionError(
                f"{vertex.where}: expected a region that commits split by split to make results with result=BLOCKING, "
                f"found {vertex.result.name}: its batches are files of several attempts of one run"
            )


def _advice(vertex: Vertex, source: str) -> str:
    if vertex.kind is VertexKind.SINK:
        return "a sink ends as a whole. Declare a vertex with result=BLOCKING and commit='split' before it"
    return (
        "declare it, if each of its rows comes of one split (no aggregate, window, distinct, sort, limit or sample); "
        f"else put a vertex with result=BLOCKING and commit='split' between {source!r} and it"
    )


def _made_of(source: str, region: Region, vertices: Mapping[str, Vertex]) -> set[str]:
    """The vertices of the region that read the source, through whatever; the region's are in topological order."""
    reached = {source}
    for name in region.vertices:
        if any(edge.vertex in reached for edge in vertices[name].inputs):
            reached.add(name)
    return reached
