"""Why a region is kept or must run, as values that a person can read and a machine can compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_recovery.model.determinism import Determinism


class Why(str, Enum):
    """The causes. The first one that applies is the one that is told."""

    NEVER_FINISHED = "never finished"
    FAILED = "failed"
    NOT_COMMITTED = "finished, and not committed to its sink"
    RESET = "reset"
    CODE_CHANGED = "code or parameters changed"
    EXTERNAL_CHANGED = "external input changed"
    SPLITS_CHANGED = "its splits are others now"
    INPUTS_CHANGED = "reads other inputs now"
    OUTDATED = "was outdated when its newest attempt began"
    DECLARED_OTHERWISE = "class, arguments or local files changed"
    INPUT_REMADE = "input was made again"
    INPUT_DIFFERS = "input was made again with other rows"
    INPUT_INVALID = "input is not valid"
    CHANNEL_RESTARTED = "its channel starts a new generation"
    UNSEEN_CODE = "cleared, and its code can't be seen"
    XCOMS_LOST = "its XComs can't be pushed again"
    OUTPUT_MISSING = "result is missing"
    OUTPUT_ALTERED = "result was altered"
    OUTPUT_RELEASED = "result was released"


LOST_DATA = frozenset({Why.OUTPUT_MISSING, Why.OUTPUT_ALTERED, Why.OUTPUT_RELEASED})
"""The causes that are about data: somebody wants it, and it is not there as registered."""


ASKS_OWN_TASK = frozenset({Why.OUTDATED, Why.DECLARED_OTHERWISE})
"""The causes that other tasks see, and that only the region's own task can judge: it may find its result valid."""


@dataclass(frozen=True)
class Evidence:
    """``asked``: what was looked at, a URI or a record such as ``outcome of by_route@2``; ``said``: its answer."""

    asked: str
    said: str


@dataclass(frozen=True)
class Reason:
    """``region`` must run because of ``why``. ``detail`` says it in words, ``cause`` is the reason behind it, if any.

    ``source`` names the input that an `Why.INPUT_REMADE` is about, or the region that began a channel anew.
    ``evidence`` holds what a store was asked.
    """

    region: str
    why: Why
    detail: str = ""
    cause: Reason | None = None
    source: str | None = None
    evidence: tuple[Evidence, ...] = ()

    def text(self) -> str:
        """One line, down to the root cause; the middle of a long chain is left out."""
        chain = []
        reason: Reason | None = self
        while reason is not None:
            chain.append(reason)
            reason = reason.cause
        parts = [
            f"{reason.region}: {reason.why.value}" + (f" ({reason.detail})" if reason.detail else "")
            for reason in chain[:4]
        ]
        if len(chain) > 5:
            parts.append(f"... {len(chain) - 5} more ...")
        if len(chain) > 4:
            parts.append(Reason(chain[-1].region, chain[-1].why, chain[-1].detail).text())
        return " <- ".join(parts)


@dataclass(frozen=True)
class EarlyCutoff:
    """``consumer`` keeps its result although ``producer`` was made again: it read attempt ``read``, now it is ``now``.

    ``by`` says what that rests on: `Determinism.VERIFY`, every digest it read is equal; `Determinism.ASSUME`, the
    user's word alone. ``detail`` is then what speaks against that word, as far as it is known.
    """

    consumer: str
    producer: str
    read: int
    now: int
    by: Determinism
    detail: str = ""

    def text(self) -> str:
        """One line."""
        word = "digest equal" if self.by is Determinism.VERIFY else "assumed"
        line = f"{word}: {self.consumer} read {self.producer}@{self.read}, now @{self.now}"
        return f"{line} ({self.detail})" if self.detail else line
