"""``events DAG RUN``: the history of a run, from its event streams."""

from __future__ import annotations

import argparse
import json

from airflow_recovery.console.arguments import add_run_arguments, run_to_read
from airflow_recovery.console.event_text import about, region_of, words
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.errors import UnknownRegion
from airflow_recovery.journal.events import EVENT_TYPES, event_to_json
from airflow_recovery.journal.history import Gap, Recorded, read_stream
from airflow_recovery.planning.graph import did_you_mean
from airflow_recovery.planning.plan_text import cut, table

_WRITER_CHARS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which run, and which of its events."""
    add_run_arguments(parser, bundle=True)
    parser.add_argument("--region", metavar="R", help="only those about region R")
    parser.add_argument("--type", choices=sorted(EVENT_TYPES), metavar="TYPE", help="only those of this type")
    parser.add_argument("--json", action="store_true", help="as JSON: the events, and the holes in the history")


def run(args: argparse.Namespace) -> int:
    """The subcommand. In the order of the writers' clocks, which may disagree. Raises `UnknownRegion`."""
    journal = run_to_read(args).journal
    gaps: list[Gap] = []
    recorded = list(read_stream(journal.store, journal.identity, gaps=gaps))
    recorded.sort(key=lambda event: (event.event.occurred_at, event.writer, event.number))
    chosen = [event for event in recorded if _is_chosen(event, args)]
    if args.region is not None and not chosen:
        regions = {region for event in recorded if (region := region_of(event.event)) is not None}
        if args.region not in regions:
            raise UnknownRegion(f"{args.region!r} is in no event{did_you_mean(args.region, regions)}.")
    if args.json:
        events = [{"writer": event.writer, "seq": event.number, **event_to_json(event.event)} for event in chosen]
        holes = [{"writer": gap.writer, "kind": gap.kind.value, "text": gap.text} for gap in gaps]
        output(json.dumps({"events": events, "gaps": holes}, indent=1))
    else:
        output(_text(chosen, gaps))
    return ExitCode.DONE


def _is_chosen(recorded: Recorded, args: argparse.Namespace) -> bool:
    of_type = args.type in (None, recorded.event.type)
    return of_type and args.region in (None, region_of(recorded.event))


def _text(chosen: list[Recorded], gaps: list[Gap]) -> str:
    rows = [_row(recorded) for recorded in chosen]
    parts = [table(("time", "writer", "event", "about", "says"), rows) if rows else "No such event is recorded."]
    if gaps:
        holes = "\n".join(cut(f"  process {gap.writer}: {gap.kind.value}: {gap.text}") for gap in gaps)
        parts.append(f"Events are missing, or may be (recovery does not need them):\n{holes}")
    return "\n\n".join(parts)


def _row(recorded: Recorded) -> tuple[str, ...]:
    event = recorded.event
    return event.occurred_at, recorded.writer[:_WRITER_CHARS], event.type, about(event), " ".join(words(event).split())
