"""I14: what was committed split by split has every split once, and is what its claim took over and it wrote itself."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from airflow_recovery.verify.closure import plan_in_use
from airflow_recovery.verify.finding import Answer, Finding, answer, not_applicable
from airflow_recovery.verify.history import Attempt, History, Region
from airflow_recovery.verify.records import Adopted, Claim, CommittedBatch, Named, Outcome, PlannedRegion

_RESTART = "Restart the region, which reads everything anew: `airflow recovery plan DAG RUN --restart REGION --apply`."
_KEY_LENGTH = 24
MOST = 5
"""Content keys that a finding names one by one."""


def every_split_once(history: History) -> Answer:
    """I14, of every finish that is made of batches, and of every claim that adopts some."""
    findings: list[Finding] = []
    batches = splits = bases = 0
    for attempt in history.attempts():
        region = history.regions[attempt.of.region]
        claim, outcome = attempt.claim, attempt.outcome
        if claim is not None and claim.base:
            bases += 1
            findings += _of_base(region, attempt, claim)
        if claim is None or outcome is None or not outcome.is_finished or not outcome.batches:
            continue
        batches += len(outcome.batches)
        splits += sum(len(batch.splits) for batch in outcome.batches)
        plan = history.plans.get(claim.plan)
        planned = plan.region(attempt.of.region) if plan is not None else None
        findings += _of_finish(region, attempt, claim, outcome)
        findings += _of_cover(attempt, outcome, planned)
    findings += _of_subtasks(history)
    if not batches and not bases:
        return not_applicable(14, "nothing was committed split by split")
    return answer(14, f"{splits} splits in {batches} batches; {bases} claims that took over some", findings)


def content_key(uri: str, size: int, etag: str) -> str:
    """What names a split, of its external object: by what is read, and never by where it stood in a listing."""
    return hashlib.sha256(json.dumps([uri, etag, size]).encode()).hexdigest()[:_KEY_LENGTH]


def _of_base(region: Region, attempt: Attempt, claim: Claim) -> list[Finding]:
    """It is a prefix of what is there, of attempts that had ended and were made of the same."""
    key = attempt.entries["claim"].key
    findings = []
    for adopted in claim.base:
        if adopted.attempt <= region.purged:
            continue
        before = region.attempts.get(adopted.attempt)
        length = len(before.batches) if before is not None else 0
        text = None
        if adopted.attempt >= attempt.of.attempt or before is None or not before.has("outcome"):
            text = "an attempt that has not ended"
        elif length < adopted.length:
            text = f"{length} batches"
        elif before.claim is not None and before.claim.reading != claim.reading:
            text = "an attempt that was made of other code or side inputs"
        if text is not None:
            name = Named(region.name, adopted.attempt).text
            expected = f"{adopted.length} batches of {name}, which {attempt.of.text} adopts"
            findings.append(Finding((key,), expected, text, _RESTART))
    return findings


def _of_finish(region: Region, attempt: Attempt, claim: Claim, outcome: Outcome) -> list[Finding]:
    """Its batches are those of the base and its own, and its objects are those of its batches."""
    key = attempt.entries["outcome"].key
    number = attempt.of.attempt
    named = {(batch.attempt, batch.number) for batch in outcome.batches}
    expected = set(_numbers(claim.base)) | {(number, batch) for batch in attempt.batches}
    findings = []
    if named != expected:
        findings.append(
            Finding(
                (key, attempt.entries["claim"].key),
                f"the {len(expected)} batches that {attempt.of.text} has adopted and written",
                f"{len(named - expected)} others, and {len(expected - named)} of them missing",
                _RESTART,
            )
        )
    known: list[CommittedBatch] = []
    for ref in outcome.batches:
        of = region.attempts.get(ref.attempt)
        batch = of.batches.get(ref.number) if of is not None else None
        if batch is None and ref.attempt <= region.purged:
            return findings
        if batch is None or batch.splits != ref.splits:
            found = "none" if batch is None else "one of other splits"
            expected_batch = f"batch {ref.number} of {Named(region.name, ref.attempt).text}, with the same splits"
            findings.append(Finding((key,), expected_batch, found, _RESTART))
        else:
            known.append(batch)
    if len(known) == len(outcome.batches):
        made = {entry for batch in known for manifest in batch.outputs for entry in manifest.uris()}
        registered = {entry for manifest in outcome.outputs for entry in manifest.uris()}
        if made != registered:
            findings.append(
                Finding(
                    (key,),
                    f"the {len(made)} objects of its batches",
                    f"{len(registered - made)} others, and {len(made - registered)} of them missing",
                    _RESTART,
                )
            )
    return findings


def _of_cover(attempt: Attempt, outcome: Outcome, planned: PlannedRegion | None) -> list[Finding]:
    counts = Counter(key for batch in outcome.batches for key in batch.splits)
    twice = [key for key, count in counts.items() if count > 1]
    source = planned.split_source if planned is not None else None
    assigned = {
        content_key(uri, size, etag) for vertex, uri, size, etag in outcome.externals if source in (None, vertex)
    }
    # Which splits a subtask has pulled is said by its batches alone.
    missing = [] if planned is not None and planned.pulls_splits else sorted(assigned - counts.keys())
    foreign = sorted(counts.keys() - assigned)
    problems = {"twice": twice, "missing": missing, "not assigned": foreign}
    wrong = [f"{len(keys)} {what} ({', '.join(keys[:MOST])})" for what, keys in problems.items() if keys]
    if not wrong:
        return []
    expected = f"each of the {len(assigned)} splits of {attempt.of.text} in exactly one batch"
    return [Finding((attempt.entries["outcome"].key,), expected, "; ".join(wrong), _RESTART)]


def _of_subtasks(history: History) -> list[Finding]:
    """Subtasks that pull their splits share one assignment: each split is with one of them."""
    findings = []
    plan = plan_in_use(history)
    groups: dict[str, list[PlannedRegion]] = {}
    for region in plan.regions if plan is not None else ():
        if region.pulls_splits:
            groups.setdefault(region.subtask[0] if region.subtask is not None else region.name, []).append(region)
    for name, regions in groups.items():
        known = [history.regions[region.name].current for region in regions if region.name in history.regions]
        finished = [current for current in known if current is not None and current.outcome is not None]
        outcomes = [current.outcome for current in finished if current.outcome is not None]
        counts = Counter(key for outcome in outcomes for batch in outcome.batches for key in batch.splits)
        keys = tuple(current.entries["outcome"].key for current in finished)
        twice = [key for key, count in counts.items() if count > 1]
        same = {outcome.externals for outcome in outcomes}
        missing: list[str] = []
        if len(finished) == len(regions) and len(same) == 1:
            assigned = {content_key(uri, size, etag) for _, uri, size, etag in same.pop()}
            missing = sorted(assigned - counts.keys())
        problems = {"with two of them": twice, "with none": missing}
        wrong = [f"{len(keys)} {what} ({', '.join(keys[:MOST])})" for what, keys in problems.items() if keys]
        if wrong:
            expected = f"each split of {name} with exactly one of its {len(regions)} subtasks"
            findings.append(Finding(keys, expected, "; ".join(wrong), _RESTART))
    return findings


def _numbers(base: tuple[Adopted, ...]) -> list[tuple[int, int]]:
    return [
        (adopted.attempt, number)
        for adopted in base
        for number in range(adopted.length)
        if number not in adopted.dropped
    ]
