"""One event of a run's history in a few words: what it is about, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_recovery.journal import events as ev
from airflow_recovery.model.records import (
    AttemptState,
    Claim,
    Committed,
    CommitterDead,
    CommitterEpoch,
    Declared,
    Lost,
    Outcome,
    Pin,
    Publish,
    Released,
    Reset,
    Withdrawal,
)

_NOBODY = "-"


def about(event: ev.JobEvent) -> str:
    """``region@attempt`` or the region alone; ``-`` for an event that is about the run."""
    record = event.subject
    region = getattr(record, "region", None)
    if region is None:
        return _NOBODY
    number = getattr(record, "attempt", None)
    return str(region) if number is None else f"{region}@{number}"


def region_of(event: ev.JobEvent) -> str | None:
    """The region that an event is about, if any."""
    text = about(event).partition("@")[0]
    return None if text == _NOBODY else text


def words(event: ev.JobEvent) -> str:
    """What it says, without what it is about. Empty where the type says it all."""
    if isinstance(event, ev.RecordWritten) and event.number is not None:
        return f"purge {event.number}"
    tell = _WORDS.get(type(event.subject))
    return tell(event.subject) if tell is not None else ""


def _ended(outcome: Outcome) -> str:
    if outcome.state is not AttemptState.FINISHED:
        cause = outcome.cause.value if outcome.cause is not None else ""
        return ": ".join(text for text in (cause, outcome.detail or "") if text)
    rows = [manifest.rows for manifest in outcome.outputs if manifest.rows is not None]
    seconds = "" if outcome.spark_seconds is None else f", {outcome.spark_seconds:.1f} s of Spark"
    return f"{sum(rows):,} rows{seconds}" if rows else seconds.lstrip(", ")


def _kept(event: ev.RegionKept) -> str:
    saved = "" if event.seconds_saved is None else f", {event.seconds_saved:.1f} s saved"
    return f"{event.why}{saved}"


def _failover(event: ev.FailoverPlanned) -> str:
    lost = ", ".join(f"{read.region}@{read.attempt}" for read in event.lost)
    return f"lost {lost}; runs {', '.join(region for region, _ in event.plan)}"


# By the class of what an event tells: a record, or the event itself.
_WORDS: dict[type[Any], Callable[[Any], str]] = {
    ev.JobPlanned: lambda event: f"{event.job}, plan {event.plan_hash[:8]}",
    Claim: lambda claim: f"try {claim.try_number} of {claim.airflow_run_id}",
    Outcome: _ended,
    Reset: lambda reset: f"by {reset.who}: {reset.why}",
    Lost: lambda lost: f"says {lost.reporter}: {'; '.join(lost.evidence)}",
    Released: lambda released: f"by {released.who}",
    Declared: lambda turn: "found valid by its own task" if turn.is_answer else f"asked by {turn.who}",
    Committed: lambda committed: f"{committed.end.value.lower()} {committed.commit_id}".strip(),
    CommitterEpoch: lambda committer: f"epoch {committer.epoch}",
    CommitterDead: lambda dead: f"by {dead.who}: {dead.why}",
    ev.SplitsCommitted: lambda batch: f"batch {batch.number}: {batch.splits} splits{' given up' if batch.lost else ''}",
    Pin: lambda pin: f"{'pinned' if pin.is_pinned else 'unpinned'} by {pin.who}: {pin.why}",
    Withdrawal: lambda turn: f"{'withdrawn' if turn.is_withdrawn else 'given back'} by {turn.who}: {turn.reason}",
    Publish: lambda publish: f"publish {publish.number}, {len(publish.regions)} regions",
    ev.WriteInDoubt: lambda event: f"{event.key}: {event.why}",
    ev.EventsDropped: lambda event: f"{event.count} events: {event.why}",
    ev.JobVertexInitialized: lambda event: f"{event.parallelism} subtasks",
    ev.RegionKept: _kept,
    ev.ConsumerKept: lambda event: f"{event.producer}@{event.now} in place of @{event.read}: {event.by}",
    ev.FailoverPlanned: _failover,
    ev.RegionSkipped: lambda event: event.why,
    ev.Degraded: lambda event: f"{event.what}: {event.consequence}",
}
