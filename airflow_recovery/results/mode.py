"""What a mode keeps in the store of results beside the data of attempts, and what of it may go. Batch keeps nothing."""

from __future__ import annotations

from airflow_recovery.results.sweep_report import SweepReport
from airflow_recovery.results.swept_run import SweepOptions, SweptRun
from airflow_recovery.store.object_store import ObjectInfo, ObjectStore


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
