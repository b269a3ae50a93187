"""What the driver asks the mode of a region. The answers here are those of batch."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.vertex_pass import OpenRegion, VertexPass
from airflow_recovery.job.accumulators import Accumulators
from airflow_recovery.job.coordinator import snapshots_of
from airflow_recovery.journal.journal import Journal


class DriverMode:
    """Runs regions of one mode. Another mode has its own in the module ``driver`` of its package."""

    def run(self, region: OpenRegion, progress: Progress, journal: Callable[[], Journal]) -> AttemptResult:
        """Call the vertices, write the results, and say what was made; the caller adds the time and the application.

        ``journal`` opens the run's journal for a mode that writes more than the outcome. Raises as
        `airflow_recovery.driver.region.run_region`.
        """
        accumulators = Accumulators()
        outputs = VertexPass(region, progress=progress, accumulators=accumulators).run()
        return AttemptResult(outputs, 0.0, None, accumulators.totals(), snapshots_of(region.coordinators))
