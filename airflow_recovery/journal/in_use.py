"""Reads a run without its job's code: the topology comes from the plans in the journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.errors import NothingRecorded
from airflow_recovery.journal.journal import Journal, Listing
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Claim, PlanRecord
from airflow_recovery.store.object_store import ObjectInfo

_RESOLUTION_S = 1.0


@dataclass(frozen=True)
class RunInUse:
    """A run as its journal alone shows it.

    ``plan`` is the one that the newest claim names, ``claim`` that claim (`None` where there is one plan only);
    ``plans`` is the number of plans, ``recorded`` has all of them. ``left``: the regions that only other plans have,
    because they were renamed or removed since. ``listing`` is what ``state`` was read from, with these as well.
    """

    plan: PlanRecord
    plan_hash: str
    plans: int
    state: RunState
    listing: Listing
    claim: Claim | None = None
    left: tuple[str, ...] = ()
    recorded: tuple[PlanRecord, ...] = ()


def read_run(journal: Journal, listed: Iterable[ObjectInfo] | None = None) -> RunInUse:
    """The newest plan in use, and the state of its regions.

    Where several plans are recorded (the code has changed, or every operator of a DAG knows its own fingerprint only),
    the newest claim tells which one is in use: good enough for what is shown to a person, and no decision of a task
    rests on it. ``listed``: all objects of the journal, where they were listed just now. Raises `NothingRecorded` where
    the journal has no plan, and `PagesDisagree` as `Journal.load` does.
    """
    plans = journal.read_plans()
    if not plans:
        purged = " It was purged." if journal.list(()).state.is_closed else ""
        raise NothingRecorded(
            f"{journal.store.base_uri}/{journal.layout.prefix} holds no plan: no region has claimed an "
            f"attempt.{purged}",
            code="journal-without-plan",
        )
    names = {name: None for plan in plans.values() for name in plan.by_name}
    listing = journal.list(names, listed)
    claim = newest_claim(journal, listing) if len(plans) > 1 else None
    chosen = claim.plan_hash if claim is not None and claim.plan_hash in plans else max(plans)
    plan = plans[chosen]
    state = journal.load(listing.of(plan.by_name))
    left = tuple(sorted(names.keys() - plan.by_name.keys()))
    return RunInUse(plan, chosen, len(plans), state, listing, claim, left, tuple(plans.values()))


def newest_claim(journal: Journal, listing: Listing) -> Claim | None:
    """The latest of the regions' highest claims; `None` without any.

    By the store's times, which are of whole seconds on S3; of one second, by the clocks of the workers that claimed.
    """
    claimed: dict[tuple[str, int], float | None] = {}
    for name, region in listing.state.regions.items():
        number = max((n for n, attempt in region.attempts.items() if attempt.is_claimed), default=0)
        if number:
            listed = listing.objects.get(journal.layout.attempt(name, number, "claim"))
            claimed[name, number] = listed.modified_s if listed is not None else None
    newest_s = max((stored_s for stored_s in claimed.values() if stored_s is not None), default=0.0)
    latest = [key for key, stored_s in claimed.items() if stored_s is None or stored_s > newest_s - _RESOLUTION_S]
    return max(journal.read_claims(latest), key=lambda claim: (claim.claimed_at, claim.region), default=None)
