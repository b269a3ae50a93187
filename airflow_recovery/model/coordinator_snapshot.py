"""What a source's coordinator leaves behind (`airflow_recovery.job.coordinator`), as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CoordinatorSnapshot:
    """What the coordinator of ``vertex`` left with the finish of ``region``. ``body`` is base64."""

    vertex: str
    region: str
    body: str
