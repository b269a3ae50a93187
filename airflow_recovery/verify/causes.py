"""I5: nothing that had finished was made again without a cause that the journal, or the data, shows."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import Attempt, History, Region
from airflow_recovery.verify.records import InputRef, Named, Outcome, Plan
from airflow_recovery.verify.registered import Registered
from airflow_recovery.verify.shared import Shared


def everything_has_a_cause(history: History, registered: Registered, shared: Shared) -> Answer:
    """I5. Where a cause can't be ruled out from here, none is missed: external inputs of an attempt that has not
    finished are not recorded, and neither is what lay at a user's own location before it was overwritten.
    """
    findings = []
    resets = again = 0
    for attempt in history.attempts():
        if attempt.reset is not None:
            resets += 1
            if not (attempt.reset.who.strip() and attempt.reset.why.strip()):
                findings.append(
                    Finding(
                        (attempt.entries["reset"].key,),
                        f"who reset {attempt.of.text}, and why",
                        f"who: {attempt.reset.who!r}, why: {attempt.reset.why!r}",
                        "A reset comes from a person or a strategy and says so. Find who writes to the journal.",
                    )
                )
    for region in history.regions.values():
        before: Attempt | None = None
        for number in region.claimed:
            attempt = region.attempts[number]
            if before is not None and before.outcome is not None:
                again += 1
                if not _has_cause(history, registered, shared, region, before, before.outcome, attempt):
                    findings.append(
                        Finding(
                            (attempt.entries["claim"].key, before.entries["outcome"].key),
                            f"a cause to make {attempt.of.text} after {before.of.text} had finished",
                            "no reset, loss or release; the same code and inputs; and its data are there",
                            "Finished work was done again. Report this with the region's objects and its tasks' logs.",
                        )
                    )
            before = attempt if attempt.is_finished else before
    return answer(5, f"{resets} resets, {again} attempts after a finish", findings)


def _has_cause(
    history: History,
    registered: Registered,
    shared: Shared,
    region: Region,
    before: Attempt,
    finish: Outcome,
    attempt: Attempt,
) -> bool:
    if attempt.claim is None:
        return True  # damaged: I12 says so
    if attempt.claim.after_clear:
        return True
    number = attempt.of.attempt
    if any(other.has("reset") and before.oldest <= at < number for at, other in region.attempts.items()):
        return True
    if before.committed is not None and not before.committed.is_done:
        return True
    if (
        before.has("lost")
        or before.has("released")
        or (finish.shared is not None and shared.may_be_gone(finish.shared))
    ):
        return True
    plan = history.plans.get(attempt.claim.plan)
    return (
        _has_other_code(region.name, plan, finish, attempt)
        or _reads_otherwise(history, region.name, plan, finish.inputs, attempt.claim.inputs)
        or attempt.claim.channels != finish.channels
        or attempt.outcome is None
        or not attempt.outcome.is_finished
        or attempt.outcome.externals != finish.externals
        or any(
            not output.managed or not registered.is_looked_at(output) or registered.wrong(output)
            for output in finish.outputs
        )
    )


def _has_other_code(region: str, plan: Plan | None, finish: Outcome, attempt: Attempt) -> bool:
    if plan is None:
        return True  # I6 says so
    planned = plan.region(region)
    today = planned.fingerprint if planned is not None else None
    # Of an operator outside a group, its own attempts alone know the fingerprint.
    if today is None and attempt.outcome is not None:
        today = attempt.outcome.fingerprint
    return today != finish.fingerprint


def _reads_otherwise(
    history: History, region: str, plan: Plan | None, before: tuple[InputRef, ...], now: tuple[InputRef, ...]
) -> bool:
    old = {ref.of.region: ref for ref in before}
    if old.keys() != {ref.of.region for ref in now}:
        return True
    return any(ref.of != old[ref.of.region].of and _differs(plan, region, old[ref.of.region], ref) for ref in now)


def _differs(plan: Plan | None, consumer: str, old: InputRef, new: InputRef) -> bool:
    """Whether another attempt of an input is a reason to run: not where its mode says that it is as good."""
    reader = plan.region(consumer) if plan is not None else None
    producer = plan.region(new.of.region) if plan is not None else None
    if plan is None or reader is None or producer is None:
        return True
    for result, mode in plan.modes(reader, producer).items():
        digests = old.digests.get(result), new.digests.get(result)
        if mode == "always" or (mode == "verify" and (None in digests or digests[0] != digests[1])):
            return True
    return False


def rests_on(
    history: History, plan: Plan | None, consumer: Attempt, counts: Mapping[str, int]
) -> list[tuple[Named, Named]]:
    """What a finish has read and what counts instead, where that is another attempt and not as good by its mode."""
    outdated = []
    for ref in consumer.outcome.inputs if consumer.outcome is not None else ():
        now = Named(ref.of.region, counts.get(ref.of.region, ref.of.attempt))
        made = history.attempt(now)
        if now == ref.of or made is None or made.outcome is None:
            continue
        digests = {output.result: output.digest for output in made.outcome.outputs if output.digest is not None}
        if _differs(plan, consumer.of.region, ref, InputRef(now, digests)):
            outdated.append((ref.of, now))
    return outdated
