"""What a mode declares of a vertex, and checks of a job, before anything runs. Batch declares nothing.

A vertex is of a mode by an option that belongs to it (``commit="split"``, ``streaming=``) or by its result type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_recovery.annexes import ANNEXES, by
from airflow_recovery.job.vertex import Vertex
from airflow_recovery.model.failover_strategy import FailoverStrategy
from airflow_recovery.model.mode import BATCH, RegionMode, answers_of
from airflow_recovery.model.result_type import RESULT_TYPES, ResultType

if TYPE_CHECKING:
    from airflow_recovery.planning.graph import JobGraph
    from airflow_recovery.planning.regions import Region, RegionGraph


class ModeOption:
    """A value for an option that only a mode understands, such as ``streaming=Streaming(...)``."""


class ModeResult(ModeOption):
    """A value for ``result=`` that says more than a result type, such as ``APPROXIMATE(reconnect="latest")``."""

    result_type: ClassVar[ResultType]


class DeclaringMode:
    """The questions, with batch's answers. A mode's own are in ``declaration`` of its package."""

    declared_by: ClassVar[str] = ""
    """The option that declares it, for messages."""
    usual_strategy: ClassVar[FailoverStrategy | None] = None
    """The failover strategy of a job that declares none, where it is not ``region``."""
    last_task: ClassVar[str | None] = None
    """The module that has the id and the operator of the group's last task, as ``LAST_TASK``; `None`: the publish."""
    keeps_vanished_splits: ClassVar[bool] = False
    """Whether what was read of a split is kept when the split is gone (``vanished="keep"``)."""

    def declared(self, vertex: Vertex, options: Mapping[str, Any]) -> object | None:
        """What ``options`` declare of ``vertex`` in this mode, for `Vertex.modes`; `None` for nothing.

        Raises `JobDefinitionError`.
        """
        return None

    def fingerprint(self, vertex: Vertex) -> Mapping[str, object]:
        """What this mode adds to the fingerprint of a vertex."""
        return {}

    def check_job(self, graph: RegionGraph, vertices: Mapping[str, Vertex], job_graph: JobGraph) -> None:
        """Raise `JobDefinitionError` for regions that could not run in this mode."""

    def check_strategy(self, strategy: FailoverStrategy, vertices: Mapping[str, Vertex], job: str) -> None:
        """Raise `JobDefinitionError` for a failover strategy of this mode that the job is not declared for."""

    def in_plan(self, region: Region, graph: RegionGraph, vertices: Mapping[str, Vertex]) -> RegionMode | None:
        """What the region's plan records of this mode; `None` for a region that is of another one."""
        return None

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
        """Raise `JobDefinitionError` where the job could not run in a DAG with these limits."""


_MODE_OF_OPTION = by("vertex_options")
MODE_OF_RESULT = {RESULT_TYPES[name]: mode for name, mode in by("result_types").items()}
_MODE_OF_STRATEGY = by("failover_strategies")


def declaring(mode: str) -> DeclaringMode:
    """The answers of the mode with that name. Raises `ConfigurationError` where its package is not installed."""
    return answers_of(mode, "declaration", DeclaringMode)


def declared_modes(vertex: Vertex, options: Mapping[str, Any]) -> dict[str, object]:
    """What ``options`` declare of ``vertex`` in each mode. Raises `JobDefinitionError`."""
    names = options.keys() - ({"commit"} if vertex.sink is not None else set())
    asked = {mode for name, mode in _MODE_OF_OPTION.items() if name in names}
    if vertex.result in MODE_OF_RESULT:
        asked.add(MODE_OF_RESULT[vertex.result])
    answers = {mode: declaring(mode).declared(vertex, options) for mode in ANNEXES if mode in asked}
    return {mode: declared for mode, declared in answers.items() if declared is not None}


def modes_in(vertices: Iterable[Vertex]) -> tuple[DeclaringMode, ...]:
    """The modes that anything in a job is declared for."""
    named = {mode for vertex in vertices for mode in vertex.modes}
    return tuple(declaring(mode) for mode in ANNEXES if mode in named)


def check_strategy(strategy: FailoverStrategy, vertices: Mapping[str, Vertex], job: str) -> None:
    """Raise `JobDefinitionError` for a strategy that belongs to a mode which nothing in the job is declared for."""
    mode = _MODE_OF_STRATEGY.get(strategy.value)
    if mode is not None:
        declaring(mode).check_strategy(strategy, vertices, job)


def planned_mode(
    modes: Iterable[DeclaringMode], region: Region, graph: RegionGraph, vertices: Mapping[str, Vertex]
) -> RegionMode:
    """What the plan of ``region`` records of its mode. ``modes``: those that the job is declared for."""
    written = (mode.in_plan(region, graph, vertices) for mode in modes)
    return next((mode for mode in written if mode is not None), BATCH)
