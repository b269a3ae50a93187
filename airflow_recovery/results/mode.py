"""What a mode keeps in the store of results beside the data of attempts, and what of it may go. Batch keeps nothing."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.journal.in_use import RunInUse
from airflow_recovery.journal.journal import Journal
from airflow_recovery.results.sweep_report import SweepReport
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore


@dataclass(frozen=True)
class CommittedBatches:
    """The files of the batches that are committed, as absolute URIs: read exactly these.

    ``batch`` is the newest one's number, -1 for none. ``records`` were read of the input channel for them, and ``lost``
    were not: `None` where that can't be known. They may be gone when the run has ended: the registered result is there
    then, and has the same rows.
    """

    region: str
    files: tuple[str, ...]
    batch: int
    records: int
    lost: int | None


class ResultsMode:
    """The questions, with batch's answers. A mode's own are in ``results`` of its package."""

    def sweep(
        self, run: SweptRun, results: ObjectStore, report: SweepReport, options: SweepOptions, *, now_s: float
    ) -> None:
        """Delete what may go, of one run that is not being purged, and say so in ``report``.

        ``now_s`` is the present time of ``results``. Raises the store's errors.
        """

    def purged(self, run: SweptRun, results: ObjectStore, *, has_come_back: bool) -> list[ObjectInfo]:
        """What goes with a run that was closed; where the run ``has_come_back``, only what was made before that."""
        return []

    def committed(
        self, results: ObjectStore, journal: Journal, run: RunInUse, result: str, *, newest_batch: bool
    ) -> CommittedBatches | None:
        """What is committed of ``result`` while it is made; `None` from a mode that commits at the end alone.

        ``newest_batch``: of a running table, whose newest batch is all of it. Raises `NotPublished` where the mode
        commits in batches, and not this one, and the store's errors.
        """
        return None
