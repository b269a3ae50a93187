"""What the task of a region asks the region's mode, where Airflow is at hand. The answers here are batch's.

Another mode answers in ``task`` of its package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from airflow_recovery.attempt.application import SparkApplication
from airflow_recovery.attempt.region_task import RegionResult
from airflow_recovery.model.mode import answers_of
from airflow_recovery.model.region_plan import RegionPlan

if TYPE_CHECKING:
    from airflow.sdk import Connection, Context

    from airflow_recovery.job import Vertex
    from airflow_recovery.task.job_run import OpenJobRun


class WaitingOperator(Protocol):
    """What a mode may know of the operator. ``start_deadline``: seconds since the epoch, once it has begun to wait."""

    region: str
    pool: str
    pool_slots: int
    deferrable: bool
    start_timeout_s: float | None
    start_deadline: float | None

    def defer(self, *, trigger: Any, method_name: str) -> NoReturn:
        """As in Airflow's operators: wait for ``trigger``, and then go on in ``method_name``. Never returns."""
        ...


@dataclass(frozen=True)
class RegionTry:
    """One try of the task of the region ``name``."""

    operator: WaitingOperator
    context: Context
    opened: OpenJobRun
    name: str


@dataclass(frozen=True)
class TryResult:
    """How it succeeded. ``summary`` is added to the task's return value, ``note`` to its note."""

    region: RegionResult
    summary: Mapping[str, Any] = field(default_factory=dict)
    note: str | None = None


class TaskMode:
    """What the task of a region asks the region's mode. These are the answers of batch."""

    def check_connection(self, region: RegionPlan, vertices: Mapping[str, Vertex], connection: Connection) -> None:
        """Raise `JobDefinitionError` or `ConfigurationError` where the region can't run over this connection."""

    def application(self, inner: SparkApplication, own: RegionTry) -> SparkApplication:
        """``inner``, with whatever the mode does around it."""
        return inner

    def run(self, attempt: Callable[[], RegionResult], own: RegionTry) -> TryResult:
        """The whole try: ``attempt`` goes through the protocol once. Raises what the task shall fail with."""
        return TryResult(attempt())


def task_of(region: RegionPlan) -> TaskMode:
    """The answers of the mode that ``region`` has. Raises `ConfigurationError` if its package is not installed."""
    return answers_of(region.mode.name, "task", TaskMode)
