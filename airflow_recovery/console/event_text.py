"""One event of a run's history in a few words: what it is about, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_recovery.journal import events as ev

_NOBODY = "-"


def about(event: ev.JobEvent) -> str:
    """``region@attempt`` or the region alone; ``-`` for an event that is about the run."""
    record = next((each for each in vars(event).values() if hasattr(each, "region")), event)
    region = getattr(record, "region", None)
    if region is None:
        return _NOBODY
    number = getattr(record, "attempt", None)
    return str(region) if number is None else f"{region}@{number}"


def region_of(event: ev.JobEvent) -> str | None:
    """The region that an event is about, if any."""
    found = about(event).partition("@")[0]
    return None if found == _NOBODY else found


def words(event: ev.JobEvent) -> str:
    """What it says, without what it is about. Empty where the type says it all."""
    tell = _WORDS.get(type(event))
    return tell(event) if tell is not None else ""


def _finished(event: ev.ExecutionVertexFinished) -> str:
    outcome = event.outcome
    rows = [each.rows for each in outcome.outputs if each.rows is not None]
    seconds = "" if outcome.spark_seconds is None else f", {outcome.spark_seconds:.1f} s of Spark"
    return f"{sum(rows):,} rows{seconds}" if rows else seconds.lstrip(", ")


def _failed(event: ev.ExecutionVertexFailed) -> str:
    cause, detail = event.outcome.cause, event.outcome.detail
    return ": ".join(each for each in (cause.value if cause is not None else "", detail or "") if each)


def _kept(event: ev.RegionKept) -> str:
    saved = "" if event.seconds_saved is None else f", {event.seconds_saved:.1f} s saved"
    return f"{event.why}{saved}"


def _failover(event: ev.FailoverPlanned) -> str:
    lost = ", ".join(f"{pin.region}@{pin.attempt}" for pin in event.lost)
    return f"lost {lost}; runs {', '.join(region for region, _ in event.plan)}"


# Each takes an event of its type.
_WORDS: dict[type[ev.JobEvent], Callable[[Any], str]] = {
    ev.JobPlanned: lambda each: f"{each.job}, plan {each.plan_hash[:8]}",
    ev.AttemptClaimed: lambda each: f"try {each.claim.try_number} of {each.claim.airflow_run_id}",
    ev.ExecutionVertexFinished: _finished,
    ev.ExecutionVertexFailed: _failed,
    ev.ExecutionVertexReset: lambda each: f"by {each.reset.who}: {each.reset.why}",
    ev.ResultLost: lambda each: f"says {each.lost.reporter}: {'; '.join(each.lost.evidence)}",
    ev.PartitionsReleased: lambda each: f"by {each.released.who}",
    ev.SinkCommitted: lambda each: f"{each.committed.end.value.lower()} {each.committed.commit_id}".strip(),
    ev.CommitterTurnTaken: lambda each: f"turn {each.turn.turn}",
    ev.CommitterConfirmedDead: lambda each: f"by {each.dead.who}: {each.dead.why}",
    ev.SplitsCommitted: lambda each: f"part {each.number}: {each.splits} splits{' given up' if each.lost else ''}",
    ev.HoldChanged: lambda each: f"{'pinned' if each.hold.is_pinned else 'let go'} by {each.hold.who}: {each.hold.why}",
    ev.ResultPublished: lambda each: f"publish {each.publish.number}, {len(each.publish.regions)} regions",
    ev.RunClosed: lambda each: f"purge {each.number}",
    ev.WriteInDoubt: lambda each: f"{each.key}: {each.why}",
    ev.EventsDropped: lambda each: f"{each.count} events: {each.why}",
    ev.JobVertexInitialized: lambda each: f"{each.parallelism} subtasks",
    ev.RegionKept: _kept,
    ev.ConsumerKept: lambda each: f"{each.producer}@{each.now} in place of @{each.read}: {each.by}",
    ev.FailoverPlanned: _failover,
    ev.RegionSkipped: lambda each: each.why,
    ev.Degraded: lambda each: f"{each.what}: {each.consequence}",
}
