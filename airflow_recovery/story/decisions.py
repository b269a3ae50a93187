"""The history of a run as a list of decisions: what happened, to whom, and the plan that followed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_recovery.journal.events import (
    ConsumerKept,
    Degraded,
    FailoverPlanned,
    JobEvent,
    JobPlanned,
    RecordWritten,
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
from airflow_recovery.story.event_list import words
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
    kind = _KINDS.get(type(subject))
    if kind is None or (isinstance(subject, Outcome) and subject.state is AttemptState.FINISHED):
        return None
    text = words(event)
    if isinstance(event, RecordWritten) and hasattr(subject, "attempt"):
        text = f"@{subject.attempt}{' ' if text.startswith(('was ', 'is ')) else ': '}{text}"
    return Decision(event.occurred_at, kind, getattr(subject, "region", None), text, getattr(subject, "plan", ()))


# By the class of what an event tells: a record, or the event itself.
_KINDS: dict[type[Any], str] = {
    JobPlanned: "planned",
    RegionKept: "kept",
    ConsumerKept: "kept",
    Outcome: "failed",
    Reset: "restart",
    Lost: "lost",
    FailoverPlanned: "failover",
    Released: "released",
    Pin: "pinned",
    Withdrawal: "withdrawn",
    Declared: "compared",
    Committed: "committed",
    Publish: "published",
    RegionSkipped: "skipped",
    Degraded: "degraded",
}
