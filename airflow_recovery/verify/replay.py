"""I11 and I12: the journal is a set of write-once objects, each of which can be read, in an order that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import History

Step = tuple[str, str, int]
"""One object, as the order sees it: kind, region (or nothing) and number."""


def same_twice(history: History, etags_now: Mapping[str, str]) -> Answer:
    """I11. No object has changed or gone. ``etags_now``: a second listing, made after all was read."""
    findings = []
    for key, etag in history.etags.items():
        if _is_live(key):
            continue
        if key not in etags_now:
            findings.append(_changed(key, "it is gone, though it was listed a moment ago"))
        elif etags_now[key] != etag:
            findings.append(_changed(key, f"etag {etag} when it was listed, {etags_now[key]} a moment later"))
    for number, publish in history.publishes.items():
        for region in publish.regions:
            attempt = history.attempt(region.of)
            entry = attempt.entries.get("outcome") if attempt is not None else None
            if entry is not None and region.outcome_etag and entry.etag != region.outcome_etag:
                change = f"etag {region.outcome_etag} when publish {number} named it, {entry.etag} now"
                findings.append(_changed(entry.key, change))
    return answer(11, f"{len(history.etags)} objects, listed twice", findings)


def _is_live(key: str) -> bool:
    """Heartbeats are overwritten, and caches come and go."""
    return "/h/" in key or "/snap/" in key


def _changed(key: str, text: str) -> Finding:
    return Finding(
        (key,),
        "an object that is written once and never changes",
        text,
        "Somebody, or a store without conditional writes, overwrites the journal: find out who before going on.",
    )


def prefixes_are_valid(history: History) -> Answer:
    """I12. Each object can be read, and there is an order in which each follows what it rests on.

    So each prefix of that order is a state that the run may have been in. That an object rests on one that is not there
    is said by the invariant that needs it.
    """
    findings = [
        Finding(
            (key,),
            "an object of this run's journal that can be read",
            why,
            "Nothing behind it can be checked. Restore it from a version of the bucket, or upgrade if it is newer.",
        )
        for key, why in history.damaged.items()
    ]
    findings += [
        Finding((key,), "an object at its own key", f"the {kind} of {of.text}", "It was copied there: delete the copy.")
        for key, (of, kind) in history.misplaced.items()
        if kind != "finish"
    ]
    order, circle = _ordered(_causes(history))
    if circle:
        steps = " -> ".join(f"{region}@{number} ({kind})" for kind, region, number in circle[:10])
        findings.append(
            Finding((), "objects that each follow what they rest on", f"a circle: {steps}", "The journal was made up.")
        )
    return answer(12, f"{len(order)} objects, one after the other", findings)


def _causes(history: History) -> dict[Step, set[Step]]:
    """What each object rests on, as far as that is there at all: what is missing is another invariant's matter."""
    causes_of: dict[Step, set[Step]] = {("plan", key, 0): set() for key in history.plans}
    for attempt in history.attempts():
        region, number = attempt.of
        for kind in attempt.entries:
            causes: set[Step] = set()
            if kind == "claim" and attempt.claim is not None:
                causes |= {("plan", attempt.claim.plan, 0), ("outcome", region, number - 1)}
                causes |= {("outcome", *ref.of) for ref in attempt.claim.inputs}
            elif kind == "outcome":
                causes.add(("claim", region, number))
            elif kind in ("lost", "released", "committed") or "-" in kind:
                causes.add(("outcome", region, number))
            elif number:
                causes.add(("claim", region, number))
            causes_of[kind, region, number] = causes
    for number, publish in history.publishes.items():
        before: set[Step] = {("publish", "", number - 1)}
        causes_of["publish", "", number] = before | {("outcome", *region.of) for region in publish.regions}
    return {step: causes & causes_of.keys() for step, causes in causes_of.items()}


def _ordered(causes: Mapping[Step, set[Step]]) -> tuple[list[Step], list[Step]]:
    """A topological order of the steps, and those that are left over because they rest on each other in a circle."""
    sorter = TopologicalSorter(causes)
    with suppress(CycleError):  # the steps outside of the circle are given out all the same
        sorter.prepare()
    order = []
    while ready := sorted(sorter.get_ready()):
        order += ready
        sorter.done(*ready)
    return order, sorted(causes.keys() - set(order))
