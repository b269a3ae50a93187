"""I3: what an attempt reads was accepted."""

from __future__ import annotations

from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.records import InputRef, Named

_NEXT = "What it made may rest on rows that were never accepted: restart the reader's region."


def accepted_inputs(history: History) -> Answer:
    """I3. Claims, finishes and publishes name finished attempts, with the digests that these have."""
    findings: list[Finding] = []
    checked = 0
    for attempt in history.attempts():
        for kind, content in (("claim", attempt.claim), ("outcome", attempt.outcome)):
            for ref in content.inputs if content is not None else ():
                checked += 1
                findings += _of_ref(history, attempt.entries[kind].key, attempt.of.text, ref)
        findings += _other_than_claimed(attempt)
    for number, publish in history.publishes.items():
        for region in publish.regions:
            checked += 1
            findings += _of_ref(history, f"publish/{number:08d}", f"publish {number}", InputRef(region.of, {}))
    return answer(3, f"{checked} inputs", findings)


def _of_ref(history: History, key: str, reader: str, ref: InputRef) -> list[Finding]:
    if history.is_purged(ref.of):
        return []
    producer = history.attempt(ref.of)
    outcome = producer.outcome if producer is not None else None
    if producer is None or not producer.has("outcome"):
        state = "there is no such attempt" if producer is None or not producer.has("claim") else "it is still open"
        return [Finding((key,), f"{reader} to read a finished attempt", f"it names {ref.of.text}: {state}", _NEXT)]
    if outcome is None:
        return []  # damaged: I12 says so
    if not outcome.is_finished:
        where = (key, producer.entries["outcome"].key)
        return [Finding(where, f"{reader} to read a finished attempt", f"it names {ref.of.text}: it was fenced", _NEXT)]
    findings = []
    for result, digest in ref.digests.items():
        manifest = outcome.manifest(result)
        text = manifest.digest if manifest is not None else None
        if text != digest:
            found = f"the digest {text}" if text is not None else "no digest of such a result"
            where = (key, producer.entries["outcome"].key)
            expected = f"{result} of {ref.of.text} with the digest {digest}, as {reader} recorded it"
            findings.append(Finding(where, expected, found, _NEXT))
    return findings


def _other_than_claimed(attempt: Attempt) -> list[Finding]:
    if attempt.claim is None or attempt.outcome is None or not attempt.outcome.is_finished:
        return []
    claimed, read = (_named(claim.inputs) for claim in (attempt.claim, attempt.outcome))
    if claimed == read:
        return []
    return [
        Finding(
            (attempt.entries["outcome"].key, attempt.entries["claim"].key),
            f"{attempt.of.text} to have read what it claimed: {_text(claimed)}",
            _text(read),
            _NEXT,
        )
    ]


def _named(inputs: tuple[InputRef, ...]) -> set[Named]:
    return {ref.of for ref in inputs}


def _text(named: set[Named]) -> str:
    return ", ".join(name.text for name in sorted(named)) or "nothing"
