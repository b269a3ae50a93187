"""The history of a run, event by event: each with what it is about and what it says, in a few words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from airflow_recovery.errors import UnknownRegion
from airflow_recovery.journal import events as ev
from airflow_recovery.journal.history import Gap, read_stream
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
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.planning.plan_text import cut, table
from airflow_recovery.story.asked import AskedRun
from airflow_recovery.story.question import Given

_WRITER_CHARS = 8
_NOBODY = "-"
_MOST_NAMED = 5


@dataclass(frozen=True)
class EventGap:
    """Events of a process that are missing, or may be."""

    writer: str
    kind: str
    text: str


@dataclass(frozen=True)
class EventsAnswer:
    """``events``: as `event_to_json`, each with ``writer``, ``seq``, ``about`` and ``says``."""

    events: list[dict[str, Any]]
    gaps: list[EventGap]

    def text(self) -> str:
        """A table of the events, and what is missing."""
        rows = [
            (each["occurred_at"], each["writer"][:_WRITER_CHARS], each["type"], each["about"], each["says"])
            for each in self.events
        ]
        parts = [table(("time", "writer", "event", "about", "says"), rows) if rows else "No such event is recorded."]
        if self.gaps:
            holes = "\n".join(cut(f"  process {gap.writer}: {gap.kind}: {gap.text}") for gap in self.gaps)
            parts.append(f"Events are missing, or may be (recovery does not need them):\n{holes}")
        return "\n\n".join(parts)


def events_of_run(
    run: AskedRun,
    region: Annotated[str | None, Given("only those about region R", "R")] = None,
    type_: Annotated[str | None, Given("only those of this type", "TYPE", tuple(sorted(ev.EVENT_TYPES)))] = None,
) -> EventsAnswer:
    """Read the events in the order of the writers' clocks, which may disagree. Raises `UnknownRegion`."""
    gaps: list[Gap] = []
    recorded = list(read_stream(run.journal.store, run.journal.identity, gaps=gaps))
    recorded.sort(key=lambda event: (event.event.occurred_at, event.writer, event.number))
    chosen = [each for each in recorded if type_ in (None, each.event.type) and region in (None, region_of(each.event))]
    if region is not None and not chosen:
        regions = {found for event in recorded if (found := region_of(event.event)) is not None}
        if region not in regions:
            raise UnknownRegion(f"{region!r} is in no event{did_you_mean(region, regions)}.")
    events = [
        {
            "writer": each.writer,
            "seq": each.number,
            **ev.event_to_json(each.event),
            "about": about(each.event),
            "says": " ".join(words(each.event).split()),
        }
        for each in chosen
    ]
    return EventsAnswer(events, [EventGap(gap.writer, gap.kind.value, gap.text) for gap in gaps])


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
        cause = outcome.cause.value if outcome.cause is not None else "fenced"
        return f"{cause}: {outcome.detail or 'no detail'}"
    rows = [manifest.rows for manifest in outcome.outputs if manifest.rows is not None]
    seconds = "" if outcome.spark_seconds is None else f", {outcome.spark_seconds:.1f} s of Spark"
    return f"{sum(rows):,} rows{seconds}" if rows else seconds.lstrip(", ")


def _kept(event: ev.RegionKept) -> str:
    return event.why + (f", {event.seconds_saved:.0f} s saved" if event.seconds_saved is not None else "")


def _consumer_kept(event: ev.ConsumerKept) -> str:
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.producer}@{event.read} is now @{event.now}, by {event.by}{detail}"


def _failover(event: ev.FailoverPlanned) -> str:
    lost = ", ".join(f"{read.region}@{read.attempt}" for read in event.lost)
    runs = [region for region, _ in event.plan]
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return f"can't read {lost}; runs {', '.join(runs[:_MOST_NAMED])}{more}"


def _declared(turn: Declared) -> str:
    if turn.is_answer:
        return "is what its operator makes as it is declared today: its own task has looked"
    return f"{turn.who} has read another declaration of its operator, so its own task looks first"


# By the class of what an event tells: a record, or the event itself.
_WORDS: dict[type[Any], Callable[[Any], str]] = {
    ev.JobPlanned: lambda event: f"{event.job} begins with plan {event.plan_hash[:8]}",
    Claim: lambda claim: f"try {claim.try_number} of {claim.airflow_run_id}",
    Outcome: _ended,
    Reset: lambda reset: f"was reset by {reset.who}: {reset.why}",
    Lost: lambda lost: f"was reported lost by {lost.reporter}: {'; '.join(lost.evidence)}",
    Released: lambda released: f"was released by {released.who}",
    Declared: _declared,
    Committed: lambda committed: f"{committed.end.value.lower()} {committed.commit_id or committed.probe}".rstrip(),
    CommitterEpoch: lambda committer: f"epoch {committer.epoch}",
    CommitterDead: lambda dead: f"by {dead.who}: {dead.why}",
    ev.SplitsCommitted: lambda batch: f"batch {batch.number}: {batch.splits} splits{' given up' if batch.lost else ''}",
    Pin: lambda pin: f"was {'pinned' if pin.is_pinned else 'unpinned'} by {pin.who}: {pin.why}",
    Withdrawal: lambda turn: f"was {'withdrawn' if turn.is_withdrawn else 'given back'} by {turn.who}: {turn.reason}",
    Publish: lambda publish: f"publish {publish.number} with {len(publish.regions)} regions",
    ev.WriteInDoubt: lambda event: f"{event.key}: {event.why}",
    ev.EventsDropped: lambda event: f"{event.count} events: {event.why}",
    ev.JobVertexInitialized: lambda event: f"{event.parallelism} subtasks",
    ev.RegionKept: _kept,
    ev.ConsumerKept: _consumer_kept,
    ev.FailoverPlanned: _failover,
    ev.RegionSkipped: lambda event: event.why,
    ev.Degraded: lambda event: f"{event.what}: {event.consequence}",
}
