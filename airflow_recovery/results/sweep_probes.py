"""Deleting what killed processes have left in a store that they asked: start-up probes, and a sweeper's for the time.

Each deletes its own objects at once, so whatever is a day old by the store's clock is nobody's. The mark of the last
race stays.
"""

from __future__ import annotations

from airflow_recovery.errors import StoreError
from airflow_recovery.results.sweep_found import CLOCK_MARGIN_S, TIME_ASKED, modified_s
from airflow_recovery.results.sweep_report import Action, SweepReport
from airflow_recovery.results.swept_run import DAY_S
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.probe import PROBED, RACED


def sweep_probes(store: ObjectStore, report: SweepReport, now_s: float, *, dry_run: bool) -> None:
    """Delete what is a day old. ``now_s`` is the store's present time."""
    try:
        for folder in (PROBED, TIME_ASKED):
            infos = [info for info in store.list(folder) if info.key != RACED]
            old = [info for info in infos if now_s - modified_s(info) - CLOCK_MARGIN_S >= DAY_S]
            if old and not dry_run:
                store.delete([info.key for info in old])
            if old:
                what, size = f"{store.base_uri}/{folder}", sum(info.size for info in old)
                report.add(what, Action.DELETED, "left by processes that were killed", len(old), size)
    except StoreError as error:
        report.unread.append(f"old probes were left as they are: {type(error).__name__}: {error}")
