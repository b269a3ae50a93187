"""What an attempt has made, before its outcome is in the journal."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import LostSplit, PartRef


@dataclass(frozen=True)
class AttemptResult:
    """What one attempt wrote. ``spark_seconds`` is the time from the first vertex to the last listing.

    Of a region that commits split by split: ``parts`` are all that ``outputs`` are put together of, also those of
    earlier attempts, whose times and accumulators are in those given here.
    """

    outputs: tuple[PartitionManifest, ...]
    spark_seconds: float
    application_id: str | None
    accumulators: tuple[tuple[str, float], ...] = ()
    coordinators: tuple[tuple[str, str], ...] = ()
    parts: tuple[PartRef, ...] = ()
    lost_splits: tuple[LostSplit, ...] = ()
