"""``rebuild DAG RUN``: in a run that was made again, set what has finished to success, without a try for each task."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from airflow_recovery.attempt.rebuild import RebuildRequest, Rebuilt, finished_tasks
from airflow_recovery.console.arguments import add_run_arguments, run_to_change
from airflow_recovery.console.connect import add_connect_argument, evaluation_of
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.terminal import answer
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.story.clearing import task_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare which run, and whether anything is changed."""
    add_run_arguments(parser)
    add_connect_argument(parser)
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and say what would be set")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """The subcommand. What has run, or is running, is left as it is: its own pre-check decides."""
    deployment, view = run_to_change(args)
    identity = view.journal.identity
    evaluation = evaluation_of(args, deployment, view)
    where = f"{view.journal.store.base_uri}/{view.journal.layout.prefix}"
    finished = finished_tasks(evaluation, lambda region: task_keys(identity, [region])[0], where)
    request = RebuildRequest(identity.run_key, finished.notes, args.dry_run)
    rebuilt = deployment.rebuild(identity.dag_id, request)
    if rebuilt is None:
        raise ConfigurationError(
            f"Expected a way into Airflow, to set {len(finished.notes)} tasks to success, found none. Use `airflow "
            "recovery rebuild` where Airflow is configured. Nothing is lost without it: each task keeps what is valid."
        )
    left = {**finished.left, **rebuilt.left}
    document = {"airflow_run_id": rebuilt.run_id, "dry_run": args.dry_run, "set": rebuilt.done, "left": left}
    answer(args, document, f"{view.header()}\n\n{_text(rebuilt, finished.notes, left, dry_run=args.dry_run)}")
    return ExitCode.DONE


def _text(rebuilt: Rebuilt, notes: Mapping[str, str], left: Mapping[str, str], *, dry_run: bool) -> str:
    lines = [f"Run {rebuilt.run_id}: {len(rebuilt.done)} tasks {'would be' if dry_run else 'were'} set to success."]
    lines += [f"  {key}: {notes[key].partition(': ')[2]}" for key in rebuilt.done]
    if left:
        lines += ["Left to their own tasks:", *(f"  {key}: {why}" for key, why in left.items())]
    return "\n".join(lines)
