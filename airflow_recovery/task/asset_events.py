"""The asset events of a try that has made nothing new: sent again only if Airflow has none.

Airflow sends an event for each asset among the outlets of every task that succeeds, also of one that was cleared and
kept its result. So each event of ours carries in its extra what it announces: an attempt, or a publish. A try that
announces it once more asks Airflow for such an event of its own task in this run, and takes out the assets that have
one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_recovery.model.records import Outcome, Publish

log = logging.getLogger(__name__)

OnKeptAssets = Literal["once", "emit"]
ONCE: OnKeptAssets = "once"
EXTRA_KEY = "airflow_recovery"
_CLOCKS_DIFFER = timedelta(hours=1)

Mark = dict[str, Any]
"""What an event announces: ``{"attempt": 2, "at": ...}`` or ``{"publish": 1, "at": ...}``; ``at`` is ISO 8601."""


def mark_of_attempt(outcome: Outcome) -> Mark:
    """What the events of a task announce that has one attempt as its result."""
    return {"attempt": outcome.attempt, "at": outcome.ended_at}


def mark_of_publish(publish: Publish) -> Mark:
    """What the events of a task announce that has published."""
    return {"publish": publish.number, "at": publish.published_at}


def send_events(context: Mapping[str, Any], task: BaseOperator, mark: Mark, *, asks_first: bool) -> None:
    """Let Airflow send the asset events of ``task`` when it succeeds, each with ``mark`` in its extra.

    ``asks_first``: without those of which Airflow has one of this task, this run and this mark. If Airflow does not
    answer, the event is sent: one too many starts a run too many, one that is missing starts none.
    """
    from airflow_recovery.airflow_compat import Asset, AssetRef

    events = context.get("outlet_events")
    if events is None:
        return
    known: set[tuple[str | None, str | None]] = set()

    def is_known(name: str | None, uri: str | None) -> bool:
        if asks_first and (name, uri) not in known and _has_event(context["ti"], name, uri, mark):
            known.add((name, uri))
            log.info("Asset %s gets no event: Airflow has that of this run for %s.", name or uri, mark)
        return (name, uri) in known

    outlets = []
    for outlet in task.outlets:
        if isinstance(outlet, (Asset, AssetRef)):
            if is_known(getattr(outlet, "name", None), getattr(outlet, "uri", None)):
                continue
            accessor = events[outlet]
            accessor.extra = {**accessor.extra, EXTRA_KEY: mark}
        outlets.append(outlet)
    task.outlets = outlets
    for accessor in events.values():
        added = accessor.asset_alias_events
        added[:] = [event for event in added if not is_known(event.dest_asset_key.name, event.dest_asset_key.uri)]
        for event in added:
            event.extra = {**event.extra, EXTRA_KEY: mark}


def _has_event(ti: Any, name: str | None, uri: str | None, mark: Mark) -> bool:
    from airflow_recovery.airflow_compat import asset_events

    source = (ti.dag_id, ti.run_id, ti.task_id, ti.map_index)
    since = datetime.fromisoformat(mark["at"]) - _CLOCKS_DIFFER
    try:
        return any(
            (event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index) == source
            and (event.extra or {}).get(EXTRA_KEY) == mark
            for event in asset_events(name, uri, since)
        )
    except Exception as error:
        log.warning("Whether asset %s has its event could not be asked, so it gets one: %s", name or uri, error)
        return False
