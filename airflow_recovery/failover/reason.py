"""Why a region is kept or must run, as values that a person can read and a machine can compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Why(str, Enum):
    """The causes. The first one that applies is the one that is told."""

    NEVER_FINISHED = "never finished"
    RESET = "reset"
    CODE_CHANGED = "code or parameters changed"
    EXTERNAL_CHANGED = "external input changed"
    INPUTS_CHANGED = "reads other inputs now"
    INPUT_REMADE = "input was made again"
    INPUT_DOES_NOT_STAND = "input does not stand"
    OUTPUT_MISSING = "result is missing"
    OUTPUT_ALTERED = "result was altered"
    OUTPUT_RELEASED = "result was released"


@dataclass(frozen=True)
class Reason:
    """``region`` must run because of ``why``; ``detail`` is the evidence, ``cause`` the reason behind it, if any."""

    region: str
    why: Why
    detail: str = ""
    cause: Reason | None = None

    def text(self) -> str:
        """One line, down to the root cause; the middle of a long chain is left out."""
        chain = []
        reason: Reason | None = self
        while reason is not None:
            chain.append(reason)
            reason = reason.cause
        parts = [
            f"{each.region}: {each.why.value}" + (f" ({each.detail})" if each.detail else "") for each in chain[:4]
        ]
        if len(chain) > 5:
            parts.append(f"... {len(chain) - 5} more ...")
        if len(chain) > 4:
            parts.append(Reason(chain[-1].region, chain[-1].why, chain[-1].detail).text())
        return " <- ".join(parts)
