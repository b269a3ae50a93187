"""The logical graph of a job: vertices, and what each of them reads (Flink's JobGraph)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.model.result_type import ResultType
from airflow_recovery.planning.ordering import CycleFound, topological_order


@dataclass(frozen=True)
class JobVertex:
    """One vertex: the names of the vertices it reads, each once, and the type of its own result.

    A sink is a final result: it is wanted even though nobody reads it. Vertices with the same ``co_location`` are one
    unit of restart, whatever is between them. How many subtasks a vertex has, the plan of a run says (`RegionPlan`).
    """

    name: str
    inputs: tuple[str, ...]
    result: ResultType
    is_sink: bool = False
    co_location: str | None = None


@dataclass(frozen=True)
class JobGraph:
    """A valid graph.

    It has at least one vertex, unique names, a maker for every input, a reader for every result that is no sink, and no
    cycle. Anything else is a `JobDefinitionError` that names the job, the vertices and what to change.
    """

    name: str
    vertices: tuple[JobVertex, ...]

    def __post_init__(self) -> None:
        if not self.vertices:
            raise JobDefinitionError(
                f"job {self.name!r}: expected at least one vertex, found none: declare one",
                code="job-without-vertex",
                job=self.name,
            )
        self._check_names()
        self._check_inputs()
        self._check_readers()
        # Computing the order is what finds a cycle.
        _ = self.in_topological_order

    @cached_property
    def in_topological_order(self) -> tuple[JobVertex, ...]:
        """The vertices, producers first; among equals in the order of declaration."""
        by_name = {vertex.name: vertex for vertex in self.vertices}
        try:
            order = topological_order({vertex.name: vertex.inputs for vertex in self.vertices})
        except CycleFound as found:
            raise JobDefinitionError(
                f"job {self.name!r}: vertices {found} form a cycle, so none of them could ever start: "
                "remove one of these inputs",
                code="cycle",
                job=self.name,
            ) from None
        return tuple(by_name[name] for name in order)

    @cached_property
    def consumers(self) -> dict[str, tuple[str, ...]]:
        """For every vertex the names of the vertices that read it, in the order of declaration."""
        readers: dict[str, list[str]] = {vertex.name: [] for vertex in self.vertices}
        for vertex in self.vertices:
            for producer in vertex.inputs:
                readers[producer].append(vertex.name)
        return {name: tuple(names) for name, names in readers.items()}

    def _check_names(self) -> None:
        seen: set[str] = set()
        for vertex in self.vertices:
            if vertex.name in seen:
                raise JobDefinitionError(
                    f"job {self.name!r}: expected unique vertex names, found {vertex.name!r} twice: rename one of them",
                    code="vertex-name-twice",
                    job=self.name,
                    vertex=vertex.name,
                )
            seen.add(vertex.name)
            if len(set(vertex.inputs)) < len(vertex.inputs):
                raise JobDefinitionError(
                    f"job {self.name!r}, vertex {vertex.name!r}: expected every input once, found "
                    f"{', '.join(vertex.inputs)}: name each only once",
                    code="input-twice",
                )

    def _check_inputs(self) -> None:
        names = {vertex.name for vertex in self.vertices}
        for vertex in self.vertices:
            for producer in vertex.inputs:
                if producer not in names:
                    raise JobDefinitionError(
                        f"job {self.name!r}, vertex {vertex.name!r}: expected a vertex for its input {producer!r}, "
                        f"found none{did_you_mean(producer, names)}: declare {producer!r} or rename the input",
                        code="input-of-no-vertex",
                        vertex=vertex.name,
                        input=producer,
                    )

    def _check_readers(self) -> None:
        for vertex in self.vertices:
            if not vertex.is_sink and not self.consumers[vertex.name]:
                raise JobDefinitionError(
                    f"job {self.name!r}, vertex {vertex.name!r}: nobody reads its result and it is no sink: "
                    "declare it as a sink, let another vertex read it, or remove it",
                    code="vertex-unread",
                    vertex=vertex.name,
                )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest known name, else the empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
