"""What a vertex may know of its run and of its attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class RunLike(Protocol):
    """The facts of a run that templates are rendered from. Dates are ISO 8601 texts; `None` where the run has none."""

    @property
    def logical_date(self) -> str | None:
        """The run's logical date."""

    @property
    def data_interval_start(self) -> str | None:
        """Where the run's data interval begins."""

    @property
    def data_interval_end(self) -> str | None:
        """Where the run's data interval ends."""

    @property
    def conf(self) -> Mapping[str, Any]:
        """The configuration that the run was triggered with."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The DAG's params as this run has them."""


@dataclass(frozen=True)
class RegionContext:
    """Handed to a vertex that has a parameter named ``context``.

    ``attempt`` counts this region's attempts in this run's journal from 1. ``conf`` and ``params`` are those of the
    run; the vertex's own parameters arrive as arguments. Rows must not depend on ``attempt``: it is for logs and for
    connections to other systems, and is no part of the fingerprint.
    """

    job: str
    vertex: str
    region: str
    attempt: int
    logical_date: str | None = None
    data_interval_start: str | None = None
    data_interval_end: str | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
