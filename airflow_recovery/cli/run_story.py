"""What a run's journal tells of each region: its attempts, its results, and why it ran, was kept or failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_recovery.cli.run_view import RunView
from airflow_recovery.errors import RecordInvalid, StoreError
from airflow_recovery.failover.judgement import Judgement
from airflow_recovery.journal.events import RegionKept
from airflow_recovery.journal.history import read_stream
from airflow_recovery.journal.records import AttemptState, Part, PartRef, RegionPlan
from airflow_recovery.journal.run_state import Attempt, RegionState
from airflow_recovery.source.parts import numbers_of


@dataclass(frozen=True)
class ResultStory:
    """One result of the attempt that counts. ``rows`` is `None` where the application did not count them."""

    name: str
    rows: int | None
    files: int
    bytes: int
    location: str


@dataclass(frozen=True)
class AttemptStory:
    """One attempt. ``reads`` are the attempts that it read, as ``region@n``."""

    number: int
    state: str
    why: str
    reads: tuple[str, ...]
    spark_seconds: float | None


@dataclass(frozen=True)
class RegionStory:
    """One region. ``attempt`` is the one that counts (0: none); ``kept`` says why a later try of it did not run."""

    name: str
    subtask: tuple[str, int] | None
    vertices: tuple[str, ...]
    state: str
    attempt: int
    why: str
    spark_seconds: float
    results: tuple[ResultStory, ...]
    attempts: tuple[AttemptStory, ...]
    kept: str | None


def tell(view: RunView) -> list[RegionStory]:
    """Every region of the run's plan, in topological order. The data itself is not looked at: that is `plan`'s."""
    judged = Judgement(view.in_use.plan, view.in_use.state, available=lambda region, attempt: None)
    kept = _kept(view)
    return [_region(view, judged, each, kept.get(each.name)) for each in view.in_use.plan.regions]


def _kept(view: RunView) -> dict[str, RegionKept]:
    """Of each region, the event that says why it was kept, at the highest attempt. Best effort: streams may be torn."""
    found: dict[str, RegionKept] = {}
    try:
        for each in read_stream(view.journal.store, view.journal.identity, gaps=[]):
            event = each.event
            if isinstance(event, RegionKept):
                before = found.get(event.region)
                if before is None or (before.attempt, before.occurred_at) <= (event.attempt, event.occurred_at):
                    found[event.region] = event
    except (RecordInvalid, StoreError):
        return found
    return found


def _region(view: RunView, judged: Judgement, region: RegionPlan, kept: RegionKept | None) -> RegionStory:
    state = view.in_use.state.of(region.name)
    current = state.current
    outcome = current.outcome if current is not None else None
    attempts = tuple(_attempt(view, region.name, state, n) for n in sorted(state.attempts) if n)
    said = kept.why if kept is not None and current is not None and kept.attempt == current.number else None
    return RegionStory(
        name=region.name,
        subtask=None if region.subtask is None else (region.subtask.of, region.subtask.index),
        vertices=region.vertices,
        state=_state(state),
        attempt=current.number if current is not None else 0,
        why=_why(judged, region.name, attempts, said),
        spark_seconds=sum(each.spark_seconds or 0.0 for each in attempts),
        results=tuple(
            ResultStory(each.result, each.rows, len(each.objects), each.size, each.location)
            for each in (outcome.outputs if outcome is not None else ())
        ),
        attempts=attempts,
        kept=said,
    )


def _state(state: RegionState) -> str:
    if state.open_attempt is not None:
        return "OPEN"
    current = state.current
    if state.prepared_attempt is not None:
        return "PREPARED"
    if current is not None:
        return "RELEASED" if current.is_released else "FINISHED"
    if state.was_reset:
        return "RESET"
    return "FAILED" if state.top else "NEVER RAN"


def _why(judged: Judgement, region: str, attempts: tuple[AttemptStory, ...], kept: str | None) -> str:
    standing = judged.why_not_standing(region)
    if standing is not None:
        return f"must run: {standing.text().removeprefix(f'{region}: ')}"
    if kept is not None:
        return f"kept: {kept}"
    if len(attempts) < 2:
        return "ran once"
    before = attempts[-2]
    return f"ran again after @{before.number}" + (f": {before.why}" if before.why else "")


def _attempt(view: RunView, region: str, state: RegionState, number: int) -> AttemptStory:
    attempt = state.attempts[number]
    outcome, claim = attempt.outcome, attempt.claim
    pins = outcome.inputs if outcome is not None and outcome.inputs else claim.inputs if claim is not None else ()
    return AttemptStory(
        number=number,
        state=outcome.state.value if outcome is not None else "OPEN" if attempt.is_claimed else "MARKED",
        why="; ".join(_marks(view, region, attempt) or _overtaken(attempt, state.attempts.get(number + 1))),
        reads=tuple(f"{pin.region}@{pin.attempt}" for pin in pins),
        spark_seconds=outcome.spark_seconds if outcome is not None else None,
    )


def _overtaken(attempt: Attempt, following: Attempt | None) -> list[str]:
    """What the next attempt had before it that this one did not, where both have finished."""
    before, after = attempt.outcome, following.outcome if following is not None else None
    if before is None or after is None or after.state is not AttemptState.FINISHED:
        return []
    if before.fingerprint != after.fingerprint:
        return ["code or parameters changed"]
    if before.externals != after.externals:
        return ["external inputs changed"]
    read = {pin.region: pin.attempt for pin in before.inputs}
    remade = [f"{pin.region}@{pin.attempt}" for pin in after.inputs if read.get(pin.region) != pin.attempt]
    return [f"input made again: {', '.join(remade)}"] if remade else []


def _marks(view: RunView, region: str, attempt: Attempt) -> list[str]:
    """What became of an attempt, in words."""
    found = []
    outcome = attempt.outcome
    if outcome is not None and outcome.state is AttemptState.FENCED:
        cause = outcome.cause.value if outcome.cause is not None else "fenced"
        found.append(f"{cause}: {outcome.detail}" if outcome.detail else cause)
    if attempt.is_open and attempt.claim is not None:
        found.append(f"try {attempt.claim.try_number} of {attempt.claim.airflow_run_id}, {attempt.claim.claimed_at}")
    if attempt.is_reset and attempt.reset is not None:
        found.append(f"reset by {attempt.reset.who}: {attempt.reset.why}")
    if attempt.is_lost:
        lost = view.journal.read_lost(region, attempt.number)
        found.append(f"reported lost by {lost.reporter}: {'; '.join(lost.evidence)}")
    if attempt.is_prepared:
        found.append("not committed to its sink yet")
    if attempt.committed is not None:
        found.append(f"{attempt.committed.end.value.lower()}: {attempt.committed.commit_id or attempt.committed.probe}")
    if attempt.is_released:
        found.append("its data was released")
    splits = _splits(view, region, attempt)
    return found if splits is None else [splits, *found]


def _splits(view: RunView, region: str, attempt: Attempt) -> str | None:
    """How far an attempt came that commits split by split; `None` of any other."""
    outcome, claim = attempt.outcome, attempt.claim
    if outcome is not None and outcome.parts:
        of_others = [each for each in outcome.parts if each.attempt != attempt.number]
        done, adopted = _count(outcome.parts), _count(of_others)
        lost = f", {len(outcome.lost_splits)} of them given up" if outcome.lost_splits else ""
        return f"{done} of {done} splits done, {adopted} of them by earlier attempts{lost}"
    base = numbers_of(claim.base) if claim is not None else []
    if not attempt.parts and not base:
        return None
    own = view.journal.read_parts(region, attempt.number, attempt.parts)
    taken = f", {_count(view.journal.read_parts_of(region, base))} taken over" if base else ""
    return f"{_count(own)} splits done{taken}"


def _count(parts: Iterable[Part | PartRef]) -> int:
    return sum(len(each.splits) for each in parts)
