"""``show DAG RUN``: what a run did, from its journal alone, or from a bundle of it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from airflow_recovery.console.arguments import add_run_arguments, run_to_read
from airflow_recovery.console.bundle import BundleStore
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.planning.plan_text import cut, ranges, table
from airflow_recovery.story.mode import story_modes
from airflow_recovery.story.run_history import history_of
from airflow_recovery.story.run_story import RegionStory, tell
from airflow_recovery.story.run_view import view_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which run or bundle, and in which form."""
    add_run_arguments(parser, bundle=True)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. Shows what the journal says; looks at no data."""
    read = run_to_read(args)
    journal = read.journal
    view = view_run(journal)
    bundle = journal.store if isinstance(journal.store, BundleStore) else None
    stories, history = tell(view), history_of(view)
    reports = [mode.report(view, read.results, read.no_channels) for mode in story_modes()]
    if args.json:
        document = _document(view.journal.identity, view.in_use.plan_hash, stories)
        of_bundle = {} if bundle is None else {"bundle": {"made_at": bundle.made_at, "versions": bundle.versions}}
        of_modes = {key: value for report in reports for key, value in report.to_json().items()}
        print(json.dumps({**document, **of_modes, "history": asdict(history), **of_bundle}, indent=1))
    else:
        header = view.header() if bundle is None else f"{bundle.text()}\n{view.header()}"
        parts = [header, _regions(stories), *(report.text() for report in reports), _attempts(stories), history.text()]
        print("\n\n".join(part for part in parts if part is not None))
    return ExitCode.DONE


def _document(identity: Any, plan_hash: str, stories: list[RegionStory]) -> dict[str, Any]:
    return {**asdict(identity), "plan_hash": plan_hash, "regions": [asdict(story) for story in stories]}


def _regions(stories: list[RegionStory]) -> str:
    """One row a region: what counts now. Subtasks that are all alike in state are one row."""
    groups: dict[tuple[str, str], list[RegionStory]] = {}
    for story in stories:
        groups.setdefault((story.name, "") if story.subtask is None else (story.subtask[0], story.state), []).append(
            story
        )
    rows = []
    for (name, _), same in groups.items():
        indexes = [story.subtask[1] for story in same if story.subtask is not None]
        results = [result for story in same for result in story.results]
        known = [result.rows for result in results if result.rows is not None]
        counted = [story.attempt for story in same]
        rows.append(
            (
                f"{name}[{ranges(indexes)}]" if indexes else name,
                same[0].state,
                f"@{max(counted)}" if any(counted) else "-",
                f"{sum(known):,}" if known else "-",
                f"{sum(result.files for result in results):,}" if results else "-",
                _bytes(sum(result.bytes for result in results)) if results else "-",
                f"{sum(story.spark_seconds for story in same):.1f}",
                ", ".join(dict.fromkeys(vertex for story in same for vertex in story.vertices)),
                same[0].why if len(same) == 1 else f"{len(same)} subtasks; [{indexes[0]}] {same[0].why}",
            )
        )
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
