"""What the driver does in a region that runs on streams."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.mode import DriverMode
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.vertex_pass import OpenRegion
from airflow_recovery.journal.journal import Journal
from airflow_recovery.streaming.region import run_streaming
from airflow_recovery.streaming.spec import StreamingSpec


class StreamingDriver(DriverMode):
    """Runs the vertices as one streaming query between the region's channels."""

    def run(self, region: OpenRegion, progress: Progress, journal: Callable[[], Journal]) -> AttemptResult:
        """Run the query until its input has ended. Keeps its own log at each channel, and nothing in the journal."""
        return run_streaming(region, StreamingSpec.of(region.spec), progress)


MODE = StreamingDriver()
