"""I6: a plan divides the job into regions, and whatever ran is in one."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.verify.finding import Answer, Finding, answer, not_applicable
from airflow_recovery.verify.history import History
from airflow_recovery.verify.records import Plan

_NEXT = "The plan was damaged, or written by something else. Nothing can be decided by it: restart the run's regions."


def plans_are_partitions(history: History) -> Answer:
    """I6. A plan names each region, vertex and result once, in topological order, and whatever ran is in a plan."""
    if not history.plans and not history.regions:
        return not_applicable(6, "nothing is recorded yet")
    findings = [finding for key, plan in history.plans.items() for finding in _of_plan(key, plan)]
    known = {region.name for plan in history.plans.values() for region in plan.regions}
    for attempt in history.attempts():
        claim = attempt.claim
        if claim is None:
            continue
        plan = history.plans.get(claim.plan)
        named = plan is not None and plan.region(attempt.of.region) is not None
        if not named and f"{_prefix(history)}plan/{claim.plan}" not in history.damaged:
            found = "there is no such plan" if plan is None else "the plan has no such region"
            expected = f"{attempt.of.text} in the plan {claim.plan} that it was claimed by"
            findings.append(Finding((attempt.entries["claim"].key,), expected, found, _NEXT))
    for number, publish in history.publishes.items():
        strange = sorted(set(publish.attempts()) - known)
        if strange and not history.damaged:
            expected = f"regions of a plan in publish {number}"
            findings.append(Finding((f"publish/{number:08d}",), expected, f"also {', '.join(strange)}", _NEXT))
    return answer(6, f"{len(history.plans)} plans of {len(known)} regions", findings)


def _prefix(history: History) -> str:
    """What all keys begin with, as the store has them."""
    key = next(iter(history.etags), "")
    return next((key[: key.index(part)] for part in ("plan/", "t/", "publish/") if part in key), "")


def _of_plan(key: str, plan: Plan) -> list[Finding]:
    where = (f"plan/{key}",)
    findings = []
    if plan.hash != key:
        findings.append(Finding(where, f"a plan whose content has the hash {key}", plan.hash, _NEXT))
    names = [region.name for region in plan.regions]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        findings.append(Finding(where, "each region once", f"{', '.join(sorted(twice))} more than once", _NEXT))
    for what, owners in (("vertex", _owners(plan, "vertices")), ("result", _owners(plan, "results"))):
        shared = {name: sorted(regions) for name, regions in owners.items() if len(regions) > 1}
        for name, regions in shared.items():
            findings.append(Finding(where, f"{what} {name} in one region", f"it is in {', '.join(regions)}", _NEXT))
    seen: set[str] = set()
    for planned in plan.regions:
        later = sorted(set(planned.inputs) - seen)
        if later:
            expected = f"the inputs of {planned.name} before it: regions in topological order"
            findings.append(Finding(where, expected, f"{', '.join(later)} comes later or is no region", _NEXT))
        seen.add(planned.name)
    return findings


def _owners(plan: Plan, what: str) -> Mapping[str, set[str]]:
    """Vertex or result -> the regions that it is in; all subtasks of one region are one."""
    owners: dict[str, set[str]] = {}
    for region in plan.regions:
        for name in region.vertices if what == "vertices" else region.results:
            owners.setdefault(name, set()).add(region.subtask[0] if region.subtask is not None else region.name)
    return owners
