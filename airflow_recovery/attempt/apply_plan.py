"""Applies a plan that asks for a restart: write the resets, and name what is to be cleared.

See docs/protocol.md#restart.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.errors import ConfigurationError, ObjectMissing, PagesDisagree, PlanOutdated
from airflow_recovery.journal.journal import LISTING_ROUNDS, Journal
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.inputs import InputRef
from airflow_recovery.model.records import Reset
from airflow_recovery.planning.plan import CLEARED, Plan, PlannedRegion


@dataclass(frozen=True)
class AppliedPlan:
    """What was written, and which regions' tasks are to be cleared, in whatever state they are, running too.

    Until they are, the restart is pending: whenever one of these tasks runs, its pre-check honours it. ``at_work`` run
    as well, but have begun by themselves and read nothing that is made again: they are cleared only where their task
    has ended without telling the journal.
    """

    resets: tuple[InputRef, ...]
    clear: tuple[str, ...]
    at_work: tuple[str, ...] = ()


def apply_plan(journal: Journal, plan: Plan, who: str) -> AppliedPlan:
    """Write the resets of ``plan`` if the run is where the plan saw it.

    Compares the top attempt and the reset of every region; where one has moved on, `PlanOutdated` names it and nothing
    is written. A claim in between is harmless: a reset names the attempts that it takes away, and no later one. Raises
    `ConfigurationError` for a plan that supposes what nobody can bring about, such as a loss.
    """
    if plan.resets is None:
        raise ConfigurationError(
            f"Expected a plan of restarts alone, found: {plan.request.text()}. What is supposed to be lost, failed or "
            "changed can't be applied; ask for a restart.",
            code="plan-not-of-restarts",
        )
    for _ in range(LISTING_ROUNDS):
        listing = journal.list(region.name for region in plan.regions)
        try:
            for region in plan.regions:
                _check_unchanged(journal, region, listing.state.of(region.name))
        except ObjectMissing:
            continue
        for reset in plan.resets:
            journal.reset(Reset(reset.region, reset.attempt, who, plan.request.text()))
        cleared = plan.names(*CLEARED)
        at_work = tuple(name for name in cleared if _is_at_work(plan, name, listing.state.of(name)))
        return AppliedPlan(plan.resets, tuple(name for name in cleared if name not in at_work), at_work)
    raise PagesDisagree(f"The journal was not coherent in {LISTING_ROUNDS} listings; apply the plan again.")


def _is_at_work(plan: Plan, region: str, now: RegionState) -> bool:
    is_concerned = plan.of(region).after or any(reset.region == region for reset in plan.resets or ())
    return now.open_attempt is not None and not is_concerned


def _check_unchanged(journal: Journal, planned: PlannedRegion, now: RegionState) -> None:
    name = planned.name
    if now.latest_attempt != planned.latest_attempt:
        raise PlanOutdated(
            f"this plan is outdated: attempt {now.latest_attempt} of {name} has started. {_AGAIN}",
            code="plan-attempt-started",
            region=name,
        )
    if now.reset_watermark != planned.reset_watermark:
        reset = journal.read_reset(name, now.reset_watermark)
        raise PlanOutdated(
            f"this plan is outdated: {name}@{now.reset_watermark} was reset by {reset.who} ({reset.why}). {_AGAIN}",
            code="plan-region-reset",
            region=name,
            who=reset.who,
        )


_AGAIN = "Nothing was changed; make a new plan."
