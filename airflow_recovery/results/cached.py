"""The views that hold cached results (`airflow_recovery.model.cached_location`) on a Spark Connect server.

A view's name says whose it is, and can be computed from the journal alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from airflow_recovery.locations import comparable
from airflow_recovery.model.keys import RegionKey
from airflow_recovery.model.records import RunIdentity

if TYPE_CHECKING:
    from airflow_recovery.journal.journal import Journal
    from airflow_recovery.journal.run_state import RunState
    from airflow_recovery.model.records import PlanRecord

VIEW_PREFIX = "airflow_recovery_"
_MAX_READABLE = 40


def cached_view_name(journal: str, identity: RunIdentity, region: str, attempt: int, result: str) -> str:
    """The view of one result of one attempt; no other attempt, run or deployment has it.

    ``journal`` is the base URI of the store that holds the journals: several deployments may share a server, and have
    DAGs of the same name. Lower case, as Spark keeps names of views; what stands before the hash is for people.
    """
    name = [comparable(journal).rstrip("/"), *RegionKey.of(identity, region), attempt, result]
    digest = hashlib.sha256(json.dumps(name).encode()).hexdigest()[:32]
    readable = re.sub(r"[^a-z0-9]", "_", result.lower())[:_MAX_READABLE]
    return f"{VIEW_PREFIX}{readable}_{attempt}_{digest}"


class CachedViews(Protocol):
    """The views on a server, for whoever deletes data. See `airflow_recovery.driver.cached.CacheServer`."""

    def names(self) -> frozenset[str]:
        """All views there whose names begin as ours do, those of other deployments among them."""
        ...

    def drop(self, views: Collection[str]) -> None:
        """Forget these views and what is kept for them. One that is gone already is no error."""
        ...


def views_of_run(journal: Journal, plan: PlanRecord, state: RunState) -> dict[str, tuple[str, int]]:
    """The names that views of every attempt ever claimed would have, and the attempt (region, number) of each."""
    return {
        cached_view_name(journal.store.base_uri, journal.identity, region.name, number, result): (region.name, number)
        for region in plan.regions
        for number in range(1, state.of(region.name).latest_attempt + 1)
        for result in region.results
    }
