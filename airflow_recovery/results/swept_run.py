"""What a sweep is asked for, and what it has read of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import SHARED
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import PlanRecord
from airflow_recovery.model.retention import Retention
from airflow_recovery.results.sweep_found import Ages, RunData
from airflow_recovery.results.table_tags import RunTags
from airflow_recovery.store.object_store import ObjectInfo

DAY_S = 24 * 3600
OPEN_ATTEMPT_S = 7 * DAY_S


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep is asked for. Times are in seconds.

    ``grace_s``: how long data that nobody needs any more is kept all the same. ``retention`` holds where a job declares
    none. ``dag_id``: only this DAG's runs. ``purge_older_than_s``: also remove whole runs that have been silent for so
    long; `None`: none. ``open_attempt_s``: a run is not purged while an open attempt of it is younger than this and
    nobody knows whether it runs.
    """

    retention: Retention
    grace_s: float = 3600.0
    dag_id: str | None = None
    purge_older_than_s: float | None = None
    open_attempt_s: float = OPEN_ATTEMPT_S
    dry_run: bool = False


@dataclass(frozen=True)
class SweptRun:
    """One journal as a sweep has read it. ``names``: its regions by their names as path segments."""

    journal: Journal
    state: RunState
    plan: PlanRecord
    names: dict[str, str]
    ages: Ages
    data: RunData
    tags: RunTags | None = None
    was_read_until_now: bool = False
    """Shared results that a run has held until this very sweep: their silence begins now."""
    listed: Sequence[ObjectInfo] | None = None
    """All objects of the journal, in a dry run: it looks once, since it deletes nothing."""

    @property
    def where(self) -> str:
        """The run in messages: DAG, run key and group, or the key of a shared result."""
        identity = self.journal.identity
        if identity.dag_id == SHARED:
            return f"shared {identity.run_key}"
        return f"{identity.dag_id} / {identity.run_key} / {identity.group_id}"

    @property
    def tombstones(self) -> list[str]:
        """The keys of what its purges have left."""
        layout = self.journal.layout
        closed = (key for key in self.ages.stored_s if key.startswith(layout.closed))
        return [key for key in closed if layout.parse_closed(key) is not None]

    @property
    def silent_s(self) -> float:
        """Seconds since anybody but a sweeper has written here."""
        if self.was_read_until_now:
            return 0.0
        return self.ages.since_newest_s(key for key in self.ages.stored_s if not key.endswith(".released"))
