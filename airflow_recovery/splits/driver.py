"""How the driver runs a region that commits split by split; the work is in `airflow_recovery.splits.region`."""

from __future__ import annotations

from collections.abc import Callable

from airflow_recovery.driver.attempt_result import AttemptResult
from airflow_recovery.driver.mode import DriverMode
from airflow_recovery.driver.progress import Progress
from airflow_recovery.driver.vertex_pass import OpenRegion
from airflow_recovery.journal.journal import Journal
from airflow_recovery.splits.region import run_splits
from airflow_recovery.splits.spec import SplitSpec


class SplitDriver(DriverMode):
    """The driver's answer, which `airflow_recovery.driver.main` asks for."""

    def run(self, region: OpenRegion, progress: Progress, journal: Callable[[], Journal]) -> AttemptResult:
        """Read what no earlier attempt has, a batch at a time, and put all batches together."""
        return run_splits(region, SplitSpec.of(region.spec), journal(), progress)


MODE = SplitDriver()
