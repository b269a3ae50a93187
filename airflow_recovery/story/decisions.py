"""The history of a run as a list of decisions: what happened, to whom, and the plan that followed from it."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_recovery.journal.events import (
    ConsumerKept,
    Degraded,
    ExecutionVertexFailed,
    ExecutionVertexReset,
    FailoverPlanned,
    HoldChanged,
    JobEvent,
    JobPlanned,
    PartitionsReleased,
    RegionKept,
    RegionSkipped,
    ResultLost,
    ResultPublished,
    SinkCommitted,
)
from airflow_recovery.story.run_events import RunEvents

MAX_DECISIONS = 500
"""The newest that are told."""


@dataclass(frozen=True)
class Decision:
    """``plan``: what was to run, as (region, why). ``at`` is ISO 8601, by the clock of whoever decided."""

    at: str
    kind: str
    region: str | None
    text: str
    plan: tuple[tuple[str, str], ...] = ()


def decisions_of(events: RunEvents) -> list[Decision]:
    """Newest first, each once: an event may be recorded by several processes."""
    found = {decision for each in events.recorded if (decision := _decision(each.event)) is not None}
    return sorted(found, key=lambda each: (each.at, each.kind, each.region or "", each.text), reverse=True)[
        :MAX_DECISIONS
    ]


def _decision(event: JobEvent) -> Decision | None:
    at = event.occurred_at
    if isinstance(event, JobPlanned):
        return Decision(at, "planned", None, f"{event.job} begins with plan {event.plan_hash[:8]}")
    if isinstance(event, RegionKept):
        saved = f", {event.seconds_saved:.0f} s saved" if event.seconds_saved is not None else ""
        return Decision(at, "kept", event.region, f"{event.why}{saved}")
    if isinstance(event, ConsumerKept):
        detail = f" ({event.detail})" if event.detail else ""
        said = f"{event.producer}@{event.read} is now @{event.now}, by {event.by}{detail}"
        return Decision(at, "kept", event.region, said)
    if isinstance(event, ExecutionVertexFailed):
        outcome = event.outcome
        cause = outcome.cause.value if outcome.cause is not None else "fenced"
        return Decision(at, "failed", outcome.region, f"@{outcome.attempt}: {cause}: {outcome.detail or 'no detail'}")
    if isinstance(event, ExecutionVertexReset):
        reset = event.reset
        return Decision(at, "restart", reset.region, f"@{reset.attempt} was reset by {reset.who}: {reset.why}")
    if isinstance(event, ResultLost):
        lost = event.lost
        said = f"@{lost.attempt} was reported lost by {lost.reporter}: {'; '.join(lost.evidence)}"
        return Decision(at, "lost", lost.region, said, lost.plan)
    if isinstance(event, FailoverPlanned):
        lost_inputs = ", ".join(f"{each.region}@{each.attempt}" for each in event.lost)
        return Decision(at, "failover", event.region, f"can't read {lost_inputs}", event.plan)
    return _quieter(event)


def _quieter(event: JobEvent) -> Decision | None:
    at = event.occurred_at
    if isinstance(event, PartitionsReleased):
        released = event.released
        return Decision(at, "released", released.region, f"@{released.attempt} by {released.who}")
    if isinstance(event, HoldChanged):
        held = event.hold
        said = "was pinned" if held.is_pinned else "was let go again"
        return Decision(at, "pinned", held.region, f"@{held.attempt} {said} by {held.who}: {held.why}")
    if isinstance(event, SinkCommitted):
        committed = event.committed
        said = f"@{committed.attempt}: {committed.end.value.lower()} {committed.commit_id or committed.probe}".rstrip()
        return Decision(at, "committed", committed.region, said)
    if isinstance(event, ResultPublished):
        cut = event.publish
        return Decision(at, "published", None, f"publish {cut.number} with {len(cut.regions)} regions")
    if isinstance(event, RegionSkipped):
        return Decision(at, "skipped", event.region, event.why)
    if isinstance(event, Degraded):
        return Decision(at, "degraded", None, f"{event.what}: {event.consequence}")
    return None
