"""The result of a check: one answer for each invariant, with everything that contradicts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

INVARIANTS = {
    1: "at most one accepted finish per region and attempt, by the process that claimed it",
    2: "the attempts of a region only grow, without holes, one open at a time",
    3: "what an attempt reads was finished, and is what it was told",
    4: "every accepted result has all its objects, unless it was reported lost or released",
    5: "every reset, and every attempt after a finished one, has a cause",
    6: "every plan names each region and vertex once, and everything that ran is in a plan",
    7: "what restarts is closed: producers of what is lost, consumers by their mode",
    8: "nothing that is being read, or is published as final, was deleted",
    9: "the loss ledger stays within its budget",
    10: "an attempt commits each of its results once, to a place of its own",
    11: "replaying the journal twice gives the same state: nothing was overwritten or taken away",
    12: "every prefix of the journal is a valid state, and every object can be read",
    13: "what is published is one coherent cut, with the results as they were finished",
    14: "every split is in exactly one batch of a result, and what was taken over was there",
    15: "of every channel, each record up to the checkpoint is committed or lost, once",
}


class Verdict(str, Enum):
    """Whether the run keeps an invariant. ``NOT_APPLICABLE``: it has nothing that the invariant speaks of."""

    OK = "ok"
    VIOLATED = "VIOLATED"
    NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class Finding:
    """One contradiction: which objects, what was expected and found, and what to do next."""

    objects: tuple[str, ...]
    expected: str
    found: str
    next_step: str


@dataclass(frozen=True)
class Answer:
    """The answer to one invariant. ``said``: how much was looked at, or why the invariant does not apply."""

    invariant: int
    verdict: Verdict
    said: str
    findings: tuple[Finding, ...] = ()


def answer(invariant: int, said: str, findings: Sequence[Finding]) -> Answer:
    """The answer to an invariant that applies: violated where there is a finding."""
    return Answer(invariant, Verdict.VIOLATED if findings else Verdict.OK, said, tuple(findings))


def not_applicable(invariant: int, why: str) -> Answer:
    """The answer to an invariant of which the run has nothing; ``why`` says what it lacks."""
    return Answer(invariant, Verdict.NOT_APPLICABLE, why)
