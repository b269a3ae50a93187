"""I7: a decision names everything that has to restart with what was lost; and at the end nothing rests on old data."""

from __future__ import annotations

from airflow_recovery.verify.causes import rests_on
from airflow_recovery.verify.finding import Answer, Finding, answer, not_applicable
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.records import Plan

_SHORTENED = "..."
_WAITS = "waits: "


def restart_sets_are_closed(history: History, *, ended: bool) -> Answer:
    """I7. ``ended``: the run has ended in success, so nothing may be left to do."""
    findings: list[Finding] = []
    decisions = 0
    for attempt in history.attempts():
        if attempt.lost is not None and attempt.lost.decided and attempt.lost.decided[-1][0] != _SHORTENED:
            decisions += 1
            findings += _of_decision(history, attempt)
    plan = plan_in_use(history)
    if ended and plan is not None:
        for region in plan.regions:
            known = history.regions.get(region.name)
            current = known.current if known is not None else None
            if current is None:
                continue
            for read, now in rests_on(history, plan, current, history.counts):
                findings.append(
                    Finding(
                        (current.entries["outcome"].key,),
                        f"{current.of.text}, of a run that has ended, on what counts now",
                        f"it read {read.text}; now it is {now.text}",
                        f"The success of {region.name} is not true any more. Clear its task.",
                    )
                )
    if not decisions and not ended:
        return not_applicable(7, "nothing was reported lost, and the run is not said to have ended (--ended)")
    return answer(7, f"{decisions} decisions" + (", and the end of the run" if ended else ""), findings)


def _of_decision(history: History, attempt: Attempt) -> list[Finding]:
    """Closed under one of the recorded plans: which of them the reporter had is not recorded."""
    if attempt.lost is None:
        return []
    named = dict(attempt.lost.decided)
    candidates = [plan for plan in history.plans.values() if named.keys() <= {region.name for region in plan.regions}]
    missing: list[list[str]] = [_missing(plan, attempt.of.region, named) for plan in candidates]
    if not missing or not all(missing):
        return []
    return [
        Finding(
            (attempt.entries["lost"].key,),
            f"the decision of {attempt.lost.reporter} about {attempt.of.text} to name all that restarts with it",
            f"it lacks {', '.join(sorted(missing, key=len)[0])}",
            "Its tasks' own pre-checks find what is missing; verify again when the run has ended.",
        )
    ]


def _missing(plan: Plan, lost: str, named: dict[str, str]) -> list[str]:
    missing = [] if lost in named else [lost]
    running = {name for name, why in named.items() if not why.startswith(_WAITS)}
    regions = {region.name: region for region in plan.regions}
    for region in plan.regions:
        followed = (name for name in region.inputs if name in running)
        if region.name not in named and any(
            "always" in plan.modes(region, regions[name]).values() for name in followed
        ):
            missing.append(region.name)
    return missing


def plan_in_use(history: History) -> Plan | None:
    """The plan that the newest claim names, by the store's clock; `None` where no claim names a plan that is there."""
    claims = [
        attempt for attempt in history.attempts() if attempt.claim is not None and attempt.claim.plan in history.plans
    ]
    if not claims:
        return None
    newest = max(claims, key=lambda claim: (claim.entries["claim"].stored_s or 0.0, claim.entries["claim"].key))
    assert newest.claim is not None
    return history.plans[newest.claim.plan]
