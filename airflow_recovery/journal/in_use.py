"""Reads a run without its job's code: the topology comes from the plans in the journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.errors import NothingRecorded
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.records import Claim, PlanRecord


@dataclass(frozen=True)
class RunInUse:
    """A run as its journal alone shows it.

    ``plan`` is the one that the newest claim names, ``claim`` that claim (`None` where there is one plan only);
    ``plans`` is the number of plans, ``recorded`` has all of them. ``left``: the regions that only other plans have,
    because they were renamed or removed since.
    """

    plan: PlanRecord
    plan_hash: str
    plans: int
    state: RunState
    claim: Claim | None = None
    left: tuple[str, ...] = ()
    recorded: tuple[PlanRecord, ...] = ()


def read_run(journal: Journal) -> RunInUse:
    """The newest plan in use, and the state of its regions.

    Where several plans are recorded (the code has changed, or every operator of a DAG knows its own fingerprint only),
    the newest claim tells which one is in use. "Newest" compares the claims' times, which come from workers' clocks:
    good enough for what is shown to a person, and no decision of a task rests on it. Raises `NothingRecorded` where the
    journal has no plan, and `PagesDisagree` as `Journal.load` does.
    """
    listing = journal.list(())
    hashes = sorted(listing.state.plans)
    if not hashes:
        purged = " It was purged." if listing.state.is_closed else ""
        raise NothingRecorded(
            f"{journal.store.base_uri}/{journal.layout.prefix} holds no plan: no region has claimed an attempt.{purged}"
        )
    plans = {plan_hash: journal.read_plan(plan_hash) for plan_hash in hashes}
    names = {region.name for plan in plans.values() for region in plan.regions}
    claim = newest_claim(journal, names) if len(plans) > 1 else None
    chosen = claim.plan_hash if claim is not None and claim.plan_hash in plans else hashes[-1]
    plan = plans[chosen]
    own = [region.name for region in plan.regions]
    state = journal.load(journal.list(own))
    return RunInUse(plan, chosen, len(plans), state, claim, tuple(sorted(names - set(own))), tuple(plans.values()))


def newest_claim(journal: Journal, names: Iterable[str]) -> Claim | None:
    """The latest of the regions' highest claims, by the clocks of the workers that made them; `None` without any."""
    claimed = {
        name: [number for number, attempt in region.attempts.items() if attempt.is_claimed]
        for name, region in journal.list(names).state.regions.items()
    }
    claims = journal.read_claims((name, max(numbers)) for name, numbers in claimed.items() if numbers)
    return max(claims, key=lambda claim: (claim.claimed_at, claim.region), default=None)
