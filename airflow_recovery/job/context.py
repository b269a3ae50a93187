"""What a vertex may know of its run and of its attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_recovery.job.accumulators import Accumulators


class RunLike(Protocol):
    """The facts of a run that templates are rendered from. Dates are ISO 8601 texts; `None` where the run has none."""

    @property
    def logical_date(self) -> str | None:
        """The run's logical date, as Airflow has it."""

    @property
    def data_interval_start(self) -> str | None:
        """The first moment of the run's data interval."""

    @property
    def data_interval_end(self) -> str | None:
        """The first moment after the run's data interval."""

    @property
    def conf(self) -> Mapping[str, Any]:
        """The configuration that the run was triggered with."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The DAG's params as this run has them."""


@dataclass(frozen=True)
class Subtask:
    """Which subtask of its vertex a call works for. ``key`` names it, whatever the order of the keys is.

    Of a vertex that is not parallel it is the only one. Where keys were declared, rows must depend on the key alone:
    ``index`` and ``parallelism`` change with the list of keys, and are no part of the fingerprint.
    """

    index: int = 0
    key: str = "0"
    parallelism: int = 1


ONLY_SUBTASK = Subtask()


@dataclass(frozen=True)
class RegionContext:
    """Handed to a vertex that has a parameter named ``context``.

    ``attempt`` counts this region's attempts in this run's journal from 1. Rows must not depend on it: it is for logs
    and for connections to other systems, and is no part of the fingerprint. The run's conf and params are not here for
    the same reason: declare what a vertex needs of them as a parameter (``params={"n": "{{ params.n }}"}``), so that a
    change of it is seen.
    """

    job: str
    vertex: str
    region: str
    attempt: int
    logical_date: str | None = None
    data_interval_start: str | None = None
    data_interval_end: str | None = None
    subtask: Subtask = ONLY_SUBTASK
    accumulators: Accumulators = field(default_factory=Accumulators, compare=False)
    """Count here what is not in the rows; the vertices of a region count together."""
    coordinator: Any = field(default=None, compare=False)
    """The vertex's own coordinator, made by its ``coordinator=`` and restored from what the other subtasks left."""
