"""One run as people see it: read once, with a header that says which run it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.attempt.withdraw import withdrawals
from airflow_recovery.errors import UnknownRegion
from airflow_recovery.escaping import one_line
from airflow_recovery.journal.in_use import RunInUse, newest_claim, read_run
from airflow_recovery.journal.journal import Journal, until_pages_agree
from airflow_recovery.journal.published import CLEAR_WHAT_WAS_PURGED
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Withdrawal
from airflow_recovery.model.region_plan import RegionPlan
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.store.object_store import ObjectInfo


@dataclass(frozen=True)
class RunView:
    """A run, read once. ``published``: what its newest publish names; ``withdrawn``: what of it was withdrawn."""

    journal: Journal
    in_use: RunInUse
    published: frozenset[InputRef]
    withdrawn: tuple[Withdrawal, ...] = ()

    def header(self) -> str:
        """Which run, and which of its plans."""
        identity, in_use = self.journal.identity, self.in_use
        lines = [f"DAG {identity.dag_id}, run {identity.run_key}, group {identity.group_id}"]
        which = "the only one" if in_use.plans == 1 else f"one of {in_use.plans}"
        if in_use.claim is not None:
            which += f", named by the newest claim: {in_use.claim.region}@{in_use.claim.attempt}"
        lines.append(f"Plan {in_use.plan_hash[:8]} of {in_use.plan.job}: {which}.")
        if in_use.left:
            lines.append(f"In other plans only (renamed or removed since): {', '.join(in_use.left)}.")
        if in_use.state.newest_publish:
            lines.append(f"Publish {in_use.state.newest_publish} is the newest.")
        lines += [f"Withdrawn, so that other DAGs are not given it: {turn.text()}." for turn in self.withdrawn]
        if in_use.state.is_purged:
            lines.append(f"It was purged: nothing of it counts, and its data goes. {CLEAR_WHAT_WAS_PURGED}")
        return "\n".join(map(one_line, lines))

    def region(self, name: str) -> RegionPlan:
        """The region of that name in the plan in use. Raises `UnknownRegion` with the closest names."""
        regions = self.in_use.plan.by_name
        if name not in regions:
            raise UnknownRegion(f"{name!r} is not in this plan{did_you_mean(name, regions)}.")
        return regions[name]

    def airflow_run_id(self, asked: str) -> str:
        """The Airflow run that works on this journal: the newest claim's; ``asked`` where nobody has claimed."""
        claim = self.in_use.claim or newest_claim(self.journal, self.in_use.listing)
        return claim.airflow_run_id if claim is not None else asked


def view_run(journal: Journal, listed: Iterable[ObjectInfo] | None = None) -> RunView:
    """Read a run. A listing whose pages disagree, since tasks are writing, is made again.

    ``listed``: all objects of the journal, where they were listed just now.
    """
    listings = iter((listed,))
    in_use = until_pages_agree(lambda: read_run(journal, next(listings, None)))
    number = in_use.state.newest_publish
    publish = journal.read_publish(number) if number else None
    named = frozenset(InputRef(region.region, region.attempt) for region in (publish.regions if publish else ()))
    return RunView(journal, in_use, named, withdrawals(journal, in_use.state, publish))
