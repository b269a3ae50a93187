"""I3: what an attempt reads was accepted."""

from __future__ import annotations

from airflow_recovery.verify.finding import Answer, Finding, answer
from airflow_recovery.verify.history import Attempt, History
from airflow_recovery.verify.records import Named, Pin

_NEXT = "What it made may rest on rows that were never accepted: restart the reader's region."


def accepted_inputs(history: History) -> Answer:
    """I3, for claims, finishes and publishes."""
    findings: list[Finding] = []
    pins = 0
    for attempt in history.attempts():
        for kind, content in (("claim", attempt.claim), ("outcome", attempt.outcome)):
            for pin in content.pins if content is not None else ():
                pins += 1
                findings += _of_pin(history, attempt.entries[kind].key, attempt.of.text, pin)
        findings += _other_than_claimed(attempt)
    for number, publish in history.publishes.items():
        for region in publish.regions:
            pins += 1
            findings += _of_pin(history, f"publish/{number:08d}", f"publish {number}", Pin(region.of, {}))
    return answer(3, f"{pins} inputs", findings)


def _of_pin(history: History, key: str, reader: str, pin: Pin) -> list[Finding]:
    if history.is_purged(pin.of):
        return []
    producer = history.attempt(pin.of)
    outcome = producer.outcome if producer is not None else None
    if producer is None or not producer.has("outcome"):
        state = "there is no such attempt" if producer is None or not producer.has("claim") else "it is still open"
        return [Finding((key,), f"{reader} to read a finished attempt", f"it names {pin.of.text}: {state}", _NEXT)]
    if outcome is None:
        return []  # damaged: I12 says so
    if not outcome.is_finished:
        where = (key, producer.entries["outcome"].key)
        return [Finding(where, f"{reader} to read a finished attempt", f"it names {pin.of.text}: it was fenced", _NEXT)]
    findings = []
    for result, digest in pin.digests.items():
        manifest = outcome.manifest(result)
        text = manifest.digest if manifest is not None else None
        if text != digest:
            said = f"the digest {text}" if text is not None else "no digest of such a result"
            where = (key, producer.entries["outcome"].key)
            expected = f"{result} of {pin.of.text} with the digest {digest}, as {reader} was told"
            findings.append(Finding(where, expected, said, _NEXT))
    return findings


def _other_than_claimed(attempt: Attempt) -> list[Finding]:
    if attempt.claim is None or attempt.outcome is None or not attempt.outcome.is_finished:
        return []
    claimed, read = (_named(claim.pins) for claim in (attempt.claim, attempt.outcome))
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


def _named(pins: tuple[Pin, ...]) -> set[Named]:
    return {pin.of for pin in pins}


def _text(named: set[Named]) -> str:
    return ", ".join(name.text for name in sorted(named)) or "nothing"
