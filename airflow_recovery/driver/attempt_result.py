"""The results of an attempt, before its outcome is in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.mode import RegionMode
from airflow_recovery.model.records import ExternalObject


@dataclass(frozen=True)
class AttemptResult:
    """What one attempt wrote. ``spark_seconds`` is the time from the first vertex to the last listing.

    ``externals``: those of its trace that it has read itself; `None`: all. ``mode``: what the region's mode records in
    the outcome; `None`: what its trace has.
    """

    outputs: tuple[PartitionManifest, ...]
    spark_seconds: float
    application_id: str | None
    accumulators: tuple[tuple[str, float], ...] = ()
    coordinators: tuple[tuple[str, str], ...] = ()
    externals: tuple[ExternalObject, ...] | None = None
    mode: RegionMode | None = None
    undeclared: tuple[str, ...] = ()
    """What its vertices were seen to read and nobody has declared, each as a text."""
