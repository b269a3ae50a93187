"""Which committed batches of which attempts are still used, of regions whose mode commits in batches.

A finish of such a region is made of batches of several attempts, and a claim may take some over. So what may be deleted
is found by what finishes and claims rest on, and never by the attempt that something lies under.

    used    the batches of the finish that counts, of the one that the newest publish names, of those that are pinned,
            what the newest claim takes over, and the batches of its own attempt: its driver, or the next claim, builds
            on them
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RegionState, RunState
from airflow_recovery.model.records import Claim

BatchNumbers = Mapping[int, frozenset[int]]
"""The numbers of committed batches, by attempt."""


def newest_claims(journal: Journal, state: RunState) -> dict[str, Claim]:
    """The newest claim of each region that has batches. One read each; raises the store's errors."""
    newest = [
        (name, region.latest_attempt)
        for name, region in state.regions.items()
        if any(attempt.batches for attempt in region.attempts.values()) and region.latest_attempt in region.attempts
    ]
    return {claim.region: claim for claim in journal.read_claims(newest)}


def batches_in_use(
    state: RegionState, claim: Claim | None, published: Iterable[int], *, but_finish: int | None = None
) -> BatchNumbers:
    """The batches that are used. ``claim`` is the newest one, ``published`` are attempts that the newest publish names.

    ``but_finish``: as if the finish of this attempt did not count, and nothing were built on it.
    """
    if claim is None and not any(
        attempt.outcome and attempt.outcome.mode.batches_used for attempt in state.attempts.values()
    ):
        return {}
    used: dict[int, set[int]] = {}
    held = {attempt.number for attempt in state.pinned}
    finishes = {state.current.number if state.current is not None else 0, *published, *held} - {but_finish}
    for number in finishes:
        attempt = state.attempts.get(number)
        if attempt is not None and attempt.outcome is not None and (number in held or not attempt.is_released):
            for maker, batch in attempt.outcome.mode.batches_used:
                used.setdefault(maker, set()).add(batch)
    if claim is not None and claim.attempt != but_finish and claim.attempt > state.invalid_up_to:
        own = ((claim.attempt, number) for number in range(state.attempts[claim.attempt].batches))
        for maker, batch in (*claim.mode.batches_used, *own):
            if not state.may_be_gone(maker):
                used.setdefault(maker, set()).add(batch)
    return {maker: frozenset(batches) for maker, batches in used.items()}


def made_of(state: RegionState, number: int) -> tuple[int, ...]:
    """The attempts whose batches the finish of this attempt is made of, but for its own."""
    attempt = state.attempts.get(number)
    outcome = attempt.outcome if attempt is not None else None
    return tuple(sorted({*outcome.mode.attempts} - {number})) if outcome is not None else ()


def finishes_made_of(state: RegionState, numbers: Collection[int]) -> tuple[int, ...]:
    """The finishes, but for these themselves, that are made of batches of these attempts, whether they count or not."""
    return tuple(
        n for n in state.attempts if n not in numbers and any(number in numbers for number in made_of(state, n))
    )


def is_decided(state: RegionState, number: int) -> bool:
    """Which of its batches count is decided for good: it has finished, or a later claim has said what it adopts."""
    attempt = state.attempts.get(number)
    return attempt is not None and attempt.has_outcome and (attempt.is_finished or number < state.latest_attempt)
