"""The history of a run as a list of decisions: what happened, to whom, and the plan that followed from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_recovery.journal.events import (
    ConsumerKept,
    Degraded,
    FailoverPlanned,
    JobEvent,
    JobPlanned,
    RegionKept,
    RegionSkipped,
)
from airflow_recovery.model.records import (
    AttemptState,
    Committed,
    Declared,
    Lost,
    Outcome,
    Pin,
    Publish,
    Released,
    Reset,
    Withdrawal,
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
    decisions = {decision for recorded in events.recorded if (decision := _decision(recorded.event)) is not None}
    return sorted(
        decisions, key=lambda decision: (decision.at, decision.kind, decision.region or "", decision.text), reverse=True
    )[:MAX_DECISIONS]


def _decision(event: JobEvent) -> Decision | None:
    subject = event.subject
    tell = _TELL.get(type(subject))
    if tell is None or (isinstance(subject, Outcome) and subject.state is AttemptState.FINISHED):
        return None
    kind, text = tell(subject)
    return Decision(event.occurred_at, kind, getattr(subject, "region", None), text, getattr(subject, "plan", ()))


def _kept(event: RegionKept) -> str:
    return event.why + (f", {event.seconds_saved:.0f} s saved" if event.seconds_saved is not None else "")


def _consumer_kept(event: ConsumerKept) -> str:
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.producer}@{event.read} is now @{event.now}, by {event.by}{detail}"


def _failed(outcome: Outcome) -> str:
    cause = outcome.cause.value if outcome.cause is not None else "fenced"
    return f"@{outcome.attempt}: {cause}: {outcome.detail or 'no detail'}"


def _lost(lost: Lost) -> str:
    return f"@{lost.attempt} was reported lost by {lost.reporter}: {'; '.join(lost.evidence)}"


def _failover(event: FailoverPlanned) -> str:
    return f"can't read {', '.join(f'{read.region}@{read.attempt}' for read in event.lost)}"


def _pinned(pin: Pin) -> str:
    return f"@{pin.attempt} {'was pinned' if pin.is_pinned else 'was unpinned'} by {pin.who}: {pin.why}"


def _withdrawn(turn: Withdrawal) -> str:
    return f"@{turn.attempt} was {'withdrawn' if turn.is_withdrawn else 'given back'} by {turn.who}: {turn.reason}"


def _declared(turn: Declared) -> str:
    if turn.is_answer:
        return f"@{turn.attempt} is what its operator makes as it is declared today: its own task has looked"
    return f"@{turn.attempt}: {turn.who} has read another declaration of its operator, so its own task looks first"


def _committed(committed: Committed) -> str:
    what = f"{committed.end.value.lower()} {committed.commit_id or committed.probe}"
    return f"@{committed.attempt}: {what}".rstrip()


# By the class of what an event tells, a record or the event itself: the kind of the decision, and what it says.
_TELL: dict[type[Any], Callable[[Any], tuple[str, str]]] = {
    JobPlanned: lambda event: ("planned", f"{event.job} begins with plan {event.plan_hash[:8]}"),
    RegionKept: lambda event: ("kept", _kept(event)),
    ConsumerKept: lambda event: ("kept", _consumer_kept(event)),
    Outcome: lambda outcome: ("failed", _failed(outcome)),
    Reset: lambda reset: ("restart", f"@{reset.attempt} was reset by {reset.who}: {reset.why}"),
    Lost: lambda lost: ("lost", _lost(lost)),
    FailoverPlanned: lambda event: ("failover", _failover(event)),
    Released: lambda released: ("released", f"@{released.attempt} by {released.who}"),
    Pin: lambda pin: ("pinned", _pinned(pin)),
    Withdrawal: lambda turn: ("withdrawn", _withdrawn(turn)),
    Declared: lambda turn: ("compared", _declared(turn)),
    Committed: lambda committed: ("committed", _committed(committed)),
    Publish: lambda publish: ("published", f"publish {publish.number} with {len(publish.regions)} regions"),
    RegionSkipped: lambda event: ("skipped", event.why),
    Degraded: lambda event: ("degraded", f"{event.what}: {event.consequence}"),
}
