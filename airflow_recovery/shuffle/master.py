"""What recovery asks of whatever keeps result partitions (FLIP-383's ShuffleMaster).

Ours keeps them as files, and their registry in the journal (`airflow_recovery.shuffle.journal_master`). The interface
is what another service would have to offer: Celeborn's early plug-in said that it could take snapshots and then
reported no partition, so that everything ran again. One that can't says so: recovery is off, loudly.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from airflow_recovery.model.manifest import PartitionManifest
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.topology.job_recovery import ENABLED, JobRecovery


@dataclass(frozen=True)
class PartitionId:
    """One result as one attempt of a region made it."""

    region: str
    attempt: int
    result: str


@dataclass(frozen=True)
class ShuffleSnapshot:
    """The partitions that were known when it was taken; ``is_incremental``: only those since the one before."""

    is_incremental: bool
    partitions: tuple[tuple[PartitionId, PartitionManifest], ...]


@dataclass(frozen=True)
class PartitionWithMetrics:
    """A partition that is there. ``rows`` is `None` where nobody counted them."""

    id: PartitionId
    bytes: int
    rows: int | None


@dataclass(frozen=True)
class PartitionReport:
    """What became of the expected partitions; each is in one of the three.

    ``missing``: not known, or gone. ``unanswered``: the time was over, so nothing is known of them; Flink takes them
    for missing, and here a store that does not answer never means that (fault 27).
    """

    available: tuple[PartitionWithMetrics, ...]
    missing: tuple[PartitionId, ...]
    unanswered: tuple[PartitionId, ...] = ()


class ShuffleMaster(Protocol):
    """Keeps and finds the partitions of one job."""

    supports_batch_snapshot: bool
    """False: what was made before a loss of the master can't be found again."""

    def snapshot(self, *, is_incremental: bool = False) -> ShuffleSnapshot:
        """All partitions that count now, or those that no snapshot has had yet."""
        ...

    def restore(self, snapshots: Sequence[ShuffleSnapshot]) -> None:
        """Know what these say, oldest first: a full one replaces what was known, an incremental one adds to it."""
        ...

    def partitions_with_metrics(
        self, job: RunIdentity, timeout_s: float, expected: Collection[PartitionId]
    ) -> PartitionReport:
        """Look for ``expected``, for at most ``timeout_s``; returns as soon as each has been found or not.

        Raises the store's errors where it refuses to answer.
        """
        ...


def recovery_in_effect(
    options: JobRecovery, shuffle: ShuffleMaster | type[ShuffleMaster], where: str, log: logging.Logger
) -> JobRecovery:
    """``options``, with recovery off where the shuffle service can't take snapshots. In Flink that is silent."""
    if not options.enabled or shuffle.supports_batch_snapshot:
        return options
    name = shuffle.__name__ if isinstance(shuffle, type) else type(shuffle).__name__
    log.error(
        "%s: recovery is OFF. %s is true, but the shuffle service %s can't take snapshots, so finished results could "
        "not be found again: after every loss the whole job runs. Use a service that can, or set %s to false to say "
        "that this is what you want.",
        where,
        ENABLED,
        name,
        ENABLED,
    )
    return replace(options, enabled=False)
