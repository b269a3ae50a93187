"""Assets of Airflow as inputs of an operator: known by the events that triggered the run, else by the last event."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_recovery.locations import AssetLocation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_recovery.model.records import Claim, ExternalObject

NO_EVENT = "no event"
_DIGEST_LENGTH = 12


def triggered_by(context: Mapping[str, Any], asset: AssetLocation) -> str | None:
    """The events of ``asset`` that triggered the run of ``context``, as one text; `None` if none of them did."""
    events: Mapping[Any, Sequence[Any]] = context.get("triggering_asset_events") or {}
    own = [
        event
        for key in events
        if asset.name in ("", getattr(key, "name", None)) and asset.asset_uri in ("", getattr(key, "uri", None))
        for event in events[key]
    ]
    return text_of(own) if own else None


def last_event(asset: AssetLocation) -> str:
    """The newest event that Airflow has of ``asset``, as one text; `NO_EVENT`: it has none.

    Raises what Airflow raises where it gives no answer.
    """
    from airflow_recovery.airflow_compat import last_asset_event

    event = last_asset_event(asset.name or None, asset.asset_uri or None)
    return NO_EVENT if event is None else text_of([event])


def recorded(claims: Iterable[Claim], name: str, uri: str) -> ExternalObject | None:
    """The input ``name`` as the first of ``claims`` has it that names the asset at ``uri``; `None`: none does."""
    found = (asset for claim in claims for asset in claim.assets if (asset.vertex, asset.uri) == (name, uri))
    return next(found, None)


def text_of(events: Sequence[Any]) -> str:
    """Events of one asset, in whatever order: when and by whom the newest was sent, and a digest if there are more."""
    facts = sorted(
        [
            event.timestamp.isoformat(),
            event.source_dag_id or "",
            event.source_run_id or "",
            event.source_task_id or "",
            -1 if event.source_map_index is None else event.source_map_index,
        ]
        for event in events
    )
    time, *source, index = facts[-1]
    sender = "/".join(filter(None, source)) + (f"[{index}]" if index >= 0 else "")
    text = f"event of {time}" + (f" by {sender}" if sender else "")
    if len(facts) == 1:
        return text
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{text} and {len(facts) - 1} before it ({digest})"
