"""I4 and I8: the objects of what counts are there, and nothing was deleted while it was read."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.records import Named, Outcome
from airflow_recovery.verify.registered import Registered, is_in_a_store
from airflow_recovery.verify.shared import Shared

MOST = 10
"""The most objects that a finding names one by one."""


def objects_there(history: History, registered: Registered, shared: Shared) -> Answer:
    """I4, for what somebody may read: current finishes, the newest publish, and what open attempts were promised.

    An older attempt without its objects is no contradiction: that they were gone may be why it was made again.
    """
    findings = []
    asked = objects = out_of_reach = not_allowed = 0
    for attempt, outcome in _that_count(history):
        if attempt.has("released") or attempt.has("lost"):
            continue
        if attempt.committed is not None and attempt.committed.is_done:
            continue  # its sink has it
        if outcome.shared is not None and shared.may_be_gone(outcome.shared):
            continue
        for manifest in outcome.outputs:
            if not registered.is_looked_at(manifest):
                out_of_reach += not is_in_a_store(manifest.location)
                not_allowed += is_in_a_store(manifest.location)
                continue
            # At a user's own location a later attempt may be writing, or have written.
            if not manifest.managed and attempt.of.attempt < history.regions[attempt.of.region].latest_attempt:
                continue
            asked += 1
            objects += len(manifest.objects)
            wrong = registered.wrong(manifest)
            if wrong:
                findings.append(
                    Finding(
                        (attempt.entries["outcome"].key,),
                        f"the {len(manifest.objects)} objects of {manifest.result} of {attempt.of.text} as registered",
                        _few(wrong),
                        f"Clear the task of {attempt.of.region}: its pre-check makes it again where somebody wants it. "
                        "Where nobody does, nothing depends on it; `airflow recovery restart` makes it all the same.",
                    )
                )
    beyond = f"; {out_of_reach} kept by a Spark server or a table, not looked at" if out_of_reach else ""
    beyond += f"; {not_allowed} outside of [recovery] allowed_locations, not looked at" if not_allowed else ""
    return answer(4, f"{objects} objects of {asked} results{beyond}", findings)


def _that_count(history: History) -> Iterator[tuple[Attempt, Outcome]]:
    named: set[Named] = {region.current.of for region in history.regions.values() if region.current is not None}
    if history.newest_publish:
        named |= {region.of for region in history.publishes[history.newest_publish].regions}
    named |= {
        ref.of
        for open_attempt in history.open_attempts
        if open_attempt.claim is not None
        for ref in open_attempt.claim.inputs
    }
    for attempt, outcome in history.finished():
        if attempt.of in named:
            yield attempt, outcome


def nothing_deleted_that_is_read(history: History, registered: Registered, shared: Shared) -> Answer:
    """I8. A reader claims and then looks for the marker; whoever deletes writes the marker and then looks for claims.

    So where the claim was stored before the marker, whoever deleted has seen it, or has not looked.
    """
    findings = []
    readings = 0
    for reader in history.open_attempts:
        for ref in reader.claim.inputs if reader.claim is not None else ():
            readings += 1
            producer = history.attempt(ref.of)
            if producer is not None and producer.outcome is not None and _came_first(reader, producer):
                findings += _deleted(reader.entries["claim"].key, producer, producer.outcome, registered)
    final = _final_regions(history)
    publish = history.publishes.get(history.newest_publish)
    for region in publish.regions if publish is not None else ():
        named = history.attempt(region.of)
        if region.of.region in final:
            readings += 1
            # What a sink has taken over is read there.
            is_taken = named is not None and named.committed is not None and named.committed.is_done
            if named is not None and named.has("released") and not is_taken:
                findings.append(
                    Finding(
                        (named.entries["released"].key,),
                        f"{region.of.text}, a final result of publish {history.newest_publish}, to be kept",
                        "it was released",
                        f"Readers outside the run find nothing. Clear the task of {region.of.region}.",
                    )
                )
    for attempt, outcome in history.finished():
        if outcome.shared is None or attempt.has("released"):
            continue
        made = shared.attempt(outcome.shared)
        for holder in shared.readers(outcome.shared):
            readings += 1
            if made is not None and _came_first(holder, made):
                findings += _deleted(holder.entries["claim"].key, made, outcome, registered)
    return answer(8, f"{readings} readings", findings)


def _came_first(reader: Attempt, producer: Attempt) -> bool:
    """Released, and not before the reader claimed. Where the store tells no times, it is taken for so."""
    if not producer.has("released"):
        return False
    claimed, released = reader.entries["claim"].stored_s, producer.entries["released"].stored_s
    return claimed is None or released is None or claimed < released


def _deleted(claim_key: str, producer: Attempt, outcome: Outcome, registered: Registered) -> list[Finding]:
    wrong = [name for manifest in outcome.outputs if manifest.managed for name in registered.wrong(manifest)]
    if not wrong:
        return []
    return [
        Finding(
            (claim_key, producer.entries["released"].key),
            f"{producer.of.text} to be kept while an open attempt reads it",
            f"it was released after that had claimed, and {_few(wrong)}",
            "Whoever deleted did not look for readers. Clear the reader's task; report this with both objects.",
        )
    ]


def _final_regions(history: History) -> set[str]:
    """The regions that are final in every plan that has them."""
    plans = history.plans.values()
    inner = {region.name for plan in plans for region in plan.regions if not region.final}
    return {region.name for plan in plans for region in plan.regions} - inner


def _few(texts: list[str]) -> str:
    return "; ".join(texts[:MOST]) + (f"; and {len(texts) - MOST} more" if len(texts) > MOST else "")
