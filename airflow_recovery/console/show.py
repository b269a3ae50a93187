"""``show DAG RUN``: what a run did, from its journal alone, or from a bundle of it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from airflow_recovery.console.arguments import add_run_arguments, run_to_read
from airflow_recovery.console.bundle import BundleStore
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import output
from airflow_recovery.planning.plan_text import cut, ranges, table
from airflow_recovery.story.mode import story_modes
from airflow_recovery.story.run_events import RunEvents, events_of
from airflow_recovery.story.run_history import history_of
from airflow_recovery.story.run_story import MAX_REGIONS, AlikeRegions, RegionStory, RunStory
from airflow_recovery.story.run_view import RunView, view_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which run or bundle, and in which form."""
    add_run_arguments(parser, bundle=True)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"of a run of more than {MAX_REGIONS} regions too: every attempt, and the history of all processes",
    )


def run(args: argparse.Namespace) -> int:
    """The subcommand. Shows what the journal says; looks at no data."""
    read = run_to_read(args)
    journal = read.journal
    view = view_run(journal)
    bundle = journal.store if isinstance(journal.store, BundleStore) else None
    reports = [mode.report(view, read.results, read.no_results) for mode in story_modes()]
    is_whole = args.all or args.json or len(view.in_use.plan.regions) <= MAX_REGIONS
    story = RunStory(view, events_of(view.journal) if is_whole else RunEvents())
    history = history_of(view) if is_whole else None
    if args.json and history is not None:
        document = _document(view.journal.identity, view.in_use.plan_hash, story.all())
        of_bundle = {} if bundle is None else {"bundle": {"made_at": bundle.made_at, "versions": bundle.versions}}
        of_modes = {key: value for report in reports for key, value in report.to_json().items()}
        output(json.dumps({**document, **of_modes, "history": asdict(history), **of_bundle}, indent=1))
    else:
        header = view.header() if bundle is None else f"{bundle.text()}\n{view.header()}"
        eventful = [] if is_whole else story.eventful()
        stories = (story.of(view.region(name)) for name in eventful[:MAX_REGIONS])
        attempts = _attempts(story.all() if is_whole else list(stories))
        history_text = history.text() if history is not None else _left_out(view, len(eventful))
        parts = [header, _regions(story.alike()), *(report.text() for report in reports), attempts, history_text]
        output("\n\n".join(part for part in parts if part is not None))
    return ExitCode.DONE


def _document(identity: Any, plan_hash: str, stories: list[RegionStory]) -> dict[str, Any]:
    return {**asdict(identity), "plan_hash": plan_hash, "regions": [asdict(story) for story in stories]}


def _left_out(view: RunView, eventful: int) -> str:
    """What is left out of a large run, and how one comes to it."""
    quiet = len(view.in_use.plan.regions) - eventful
    ran = f"{quiet:,} regions ran once and are valid, or have not begun"
    lines = [f"{ran}: with --all, every attempt and the history are told."]
    if eventful > MAX_REGIONS:
        lines.insert(0, f"  and {eventful - MAX_REGIONS:,} regions more")
    return "\n".join(lines)


def _regions(groups: list[AlikeRegions]) -> str:
    """One row a region: what counts now. Subtasks that are all alike in state are one row."""
    rows = [
        (
            f"{group.name}[{ranges(group.indexes)}]" if group.indexes else group.name,
            group.state,
            f"@{group.attempt}" if group.attempt else "-",
            f"{group.rows:,}" if group.rows is not None else "-",
            f"{group.files:,}" if group.results else "-",
            _bytes(group.bytes) if group.results else "-",
            f"{group.spark_seconds:.1f}",
            ", ".join(group.vertices),
            group.why if group.regions == 1 else f"{group.regions} subtasks; [{group.indexes[0]}] {group.why}",
        )
        for group in groups
    ]
    return table(("region", "state", "attempt", "rows", "files", "size", "spark s", "vertices", "why"), rows)


def _attempts(stories: list[RegionStory]) -> str:
    """Every attempt below its region, with what it read and wrote."""
    lines = ["Attempts:"]
    for story in stories:
        lines.append(story.name)
        for attempt in story.attempts:
            reads = f", reads {', '.join(attempt.reads)}" if attempt.reads else ""
            lines.append(
                f"  {cut(f'@{attempt.number} {attempt.state}{reads}' + (f': {attempt.why}' if attempt.why else ''))}"
            )
        for result in story.results:
            rows = "rows not known" if result.rows is None else f"{result.rows:,} rows"
            size = f"{rows}, {result.files:,} files, {_bytes(result.bytes)}"
            lines.append(f"     {result.name}: {size}, {result.location}")
        if not story.attempts:
            lines.append("  none")
    return "\n".join(lines)


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError(size)
