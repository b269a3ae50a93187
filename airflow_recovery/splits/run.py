"""What is read of a run, besides its records, to evaluate regions that commit split by split: their logs."""

from __future__ import annotations

from airflow_recovery.attempt.run import RunMode
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.splits.log_store import split_log
from airflow_recovery.splits.planning import SplitBooks


class SplitRun(RunMode):
    """Reads the assignment log of every source with ``assignment="dynamic"``."""

    def known(self, plan: PlanRecord, journal: Journal) -> SplitBooks:
        """One LIST for each source whose subtasks pull their splits."""
        return SplitBooks.of(plan, lambda source: split_log(journal, source).read())


MODE = SplitRun()
