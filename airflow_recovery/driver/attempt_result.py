"""What an attempt has made, before its outcome is in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import ExternalObject
from airflow_recovery.splits.mode import LostSplit, PartRef


@dataclass(frozen=True)
class AttemptResult:
    """What one attempt wrote. ``spark_seconds`` is the time from the first vertex to the last listing.

    ``externals``: those of its trace that it has read itself; `None`: all. ``parts`` and ``lost_splits`` are as in
    `airflow_recovery.model.records.Outcome`.
    """

    outputs: tuple[PartitionManifest, ...]
    spark_seconds: float
    application_id: str | None
    accumulators: tuple[tuple[str, float], ...] = ()
    coordinators: tuple[tuple[str, str], ...] = ()
    externals: tuple[ExternalObject, ...] | None = None
    parts: tuple[PartRef, ...] = ()
    lost_splits: tuple[LostSplit, ...] = ()
